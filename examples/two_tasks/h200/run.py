"""Run every plan of `plans/` on two H200 and compare steps and memory with what was predicted.

    python3 examples/two_tasks/h200/run.py --out results

Needs two GPUs and torch, and nothing of libra-plan but the module that programs import. Writes what
every step took (`*/steps.jsonl`), logs, and the comparison: `results.jsonl` and `results.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
TURNS = Path("/dev/shm/libra-plan-two-tasks")
ROOM_GIB = 6.5  # for two versions of the weights, bf16
WARM_UP = 3  # steps left out: graphs, buckets and allocator settle


def main() -> int:
    """Run the plans one after another; the status is 1 when one of them failed."""
    given = _arguments()
    if not given.compare:
        _check_machine()
    results = []
    for plan in sorted(given.plans.glob("*/*/predicted.json")):
        name, arrangement = plan.parent.parts[-2:]
        out = given.out.resolve() / name / arrangement
        statuses = {} if given.compare else run(plan.parent, out, given.limit_s)
        if statuses:
            print(f"{name}/{arrangement}: {statuses}", flush=True)
        if set(statuses.values()) <= {0}:
            results.append({"workload": name, "arrangement": arrangement, **compared(plan, out)})
    (given.out / "results.jsonl").write_text("".join(json.dumps(each) + "\n" for each in results))
    table = "\n".join(rows(results)) + "\n"
    (given.out / "results.md").write_text(table)
    print(table)
    return 0 if len(results) == len(list(given.plans.glob("*/*/predicted.json"))) else 1


def run(plan: Path, out: Path, limit_s: float) -> dict[str, int | None]:
    """Start the scripts of a plan and wait for them; when one fails, or time is up, stop all."""
    shutil.rmtree(TURNS, ignore_errors=True)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    paths = os.pathsep.join(
        [str(HERE.parent), str(HERE.parents[2] / "src"), os.environ.get("PYTHONPATH", "")]
    )
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    running = {}
    for script in sorted(plan.glob("*.sh")):
        with (out / f"{script.stem}.log").open("wb") as log:
            running[script.stem] = subprocess.Popen(
                ["sh", str(script.resolve())],
                cwd=out,
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    until = time.monotonic() + limit_s
    while any(process.poll() is None for process in running.values()):
        if time.monotonic() > until or any(process.poll() for process in running.values()):
            break
        time.sleep(0.2)
    for process in running.values():
        _end(process)
    shutil.rmtree(TURNS, ignore_errors=True)
    return {role: process.returncode for role, process in running.items()}


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, wait_s in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                continue


def compared(plan: Path, out: Path) -> dict[str, Any]:
    """Put measured medians beside what was predicted."""
    predicted = json.loads(plan.read_text())
    lines = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    of_role = {role: [each for each in lines if each["role"] == role] for role in predicted["roles"]}
    ends = [each["ended_s"] for each in of_role["trainer"]]
    steps = [after - before for before, after in pairwise(ends)][WARM_UP - 1 :]
    roles = {}
    for role, words in predicted["roles"].items():
        stages = [each["step_s"] for each in of_role[role][WARM_UP:]]
        roles[role] = {
            "gpus": words["gpus"],
            "stage_s": pair(words["stage_s"], median(stages)),
            "stage_low_high_s": [min(stages), max(stages)],
        }
        if "peak_reserved_mib" in of_role[role][-1]:
            reserved = max(each["peak_reserved_mib"] for each in of_role[role])
            roles[role]["reserved_mib"] = pair(words["reserved_mib"], reserved)
            roles[role]["gpu_bound_mib"] = words["gpu_bound_mib"]
            roles[role]["gpu_used_mib"] = max(each["device_used_mib"] for each in of_role[role])
    step = pair(predicted["step_s"], median(steps)) | {"low_high": [min(steps), max(steps)], "n": len(steps)}
    return {"chosen": predicted["chosen"], "step_s": step, "roles": roles}


def pair(predicted: dict[str, float], measured: float) -> dict[str, float]:
    """Return both, and by how much the prediction is off (positive: it says more)."""
    return {
        "predicted": predicted["value"],
        "low": predicted["low"],
        "high": predicted["high"],
        "measured": measured,
        "error": predicted["value"] / measured - 1,
    }


def rows(results: list[dict[str, Any]]) -> Iterator[str]:
    """Write a Markdown table, and the gain of the chosen arrangement over the other."""
    yield "| workload | arrangement | what | GPUs | predicted | measured | error |"
    yield "|---|---|---|---|---|---|---|"
    for each in results:
        head = f"| {each['workload']} | {each['arrangement']}{' (chosen)' if each['chosen'] else ''} |"
        yield f"{head} step, s | 2 | {_cells(each['step_s'], 3)} |"
        for role, words in each["roles"].items():
            gpus = ", ".join(map(str, words["gpus"]))
            yield f"{head} {role}: stage, s | {gpus} | {_cells(words['stage_s'], 3)} |"
            if "reserved_mib" in words:
                yield f"{head} {role}: reserved, MiB | {gpus} | {_cells(words['reserved_mib'], 0)} |"
    yield ""
    for workload in dict.fromkeys(each["workload"] for each in results):
        mine = {each["chosen"]: each["step_s"] for each in results if each["workload"] == workload}
        if len(mine) == 2:
            said, seen = (mine[False][key] / mine[True][key] for key in ("predicted", "measured"))
            yield f"- {workload}: the chosen arrangement is {seen:.2f} × as fast (predicted: {said:.2f} ×)"


def _cells(words: dict[str, float], digits: int) -> str:
    numbers = f"{words['predicted']:,.{digits}f} | {words['measured']:,.{digits}f}"
    return f"{numbers} | {words['error']:+.1%}"


def _check_machine() -> None:
    """Say all that is missing before anything is started; a process of its own looks at the GPUs."""
    if find_spec("torch") is None:
        sys.exit("torch is missing for this python3: install it, or run this with the python3 that has it")
    room_gib = shutil.disk_usage(TURNS.parent).free / 2**30
    if room_gib < ROOM_GIB:
        sys.exit(
            f"weights pass through {TURNS.parent}: {ROOM_GIB} GiB must be free there, {room_gib:.1f} are"
        )
    names = "map(torch.cuda.get_device_name, range(torch.cuda.device_count()))"
    look = f"import torch; print(torch.__version__, *{names}, sep=', ')"
    found = subprocess.run([sys.executable, "-c", look], check=True, text=True, stdout=subprocess.PIPE).stdout
    print("torch, GPUs:", found, end="", flush=True)
    if found.count(",") == 1:
        sys.exit("these plans are for two GPUs")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the plans and compare.")
    parser.add_argument("--out", type=Path, required=True, help="folder for steps, logs and the comparison")
    parser.add_argument("--plans", type=Path, default=HERE / "plans", help="folder that plan.py wrote")
    parser.add_argument(
        "--compare", action="store_true", help="only compare what an earlier run left in --out"
    )
    parser.add_argument("--limit-s", type=float, default=180.0, help="seconds before a plan's run is stopped")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
