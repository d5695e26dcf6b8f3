"""Plan the shipped workload at several sizes, and time the command itself.

    python benchmarks/shipped.py

Times are medians with their spread over repeats on this machine; the fit cache is warm except in
the first line.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

REPEATS = 5


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return time.perf_counter() - start, done.stdout


def spread(times: list[float]) -> str:
    return f"median {statistics.median(times):.2f} s ({min(times):.2f}–{max(times):.2f})"


def main() -> None:
    program = [sys.executable, "-c", "from libra_plan.cli.app import main; main()"]
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"LIBRA_PLAN_CACHE": cache}
        first, _ = timed([*program, "solve", "profiles/", "--gpus", "8"], environment)
        print(f"solve profiles/ --gpus 8, first time, fits included: {first:.2f} s")
        helps = [timed([*program, "--help"], environment)[0] for _ in range(REPEATS)]
        print(f"--help: {spread(helps)}")
        for gpus in (8, 16, 32, 64):
            command = [*program, "solve", "profiles/", "--gpus", str(gpus), "--format", "json"]
            runs = [timed(command, environment) for _ in range(REPEATS)]
            proof = json.loads(runs[-1][1])["spec"]["certificate"]
            print(
                f"solve profiles/ --gpus {gpus}: {spread([took for took, _ in runs])}, {proof['status']}, "
                f"objective {proof['objective']:.6f}, gap {proof['gap']:.1e}"
            )
        command = [*program, "solve", "profiles/", "--gpus", "64", "--deterministic", "--format", "json"]
        same = {timed(command, environment)[1] for _ in range(2)}
        print(f"--deterministic twice: {'the same bytes' if len(same) == 1 else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
