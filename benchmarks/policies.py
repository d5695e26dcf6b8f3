"""Solve Gavel's and Sia's policy problems on their own measurements, and compare with their solvers.

    python benchmarks/policies.py --data DIR [--stick DIR] [--seeds N] [--replans N]

DIR has `gavel_throughputs_flat.csv.gz`; the measuring stick has `sia_step_time_profiles.csv.gz` and
`sia_workloads.csv.gz`. `policies_gavel` and `policies_sia` say what exactly is solved. The peers' figures
are their own solvers' on 2 cores, from the same files.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from policies_gavel import Rates, read_rates, solve_gavel
from policies_sia import measure_sia

# GPUs, pairs, levels before the sum (None: all), one variable per job; goal and what the peer reached.
GAVEL = (
    (128, True, 1, False, "worst ≥ 1.27 in 1 s", "13.1 s, 1.268"),
    (256, True, 1, False, "worst ≥ 1.27 in 3 s", "> 120 s"),
    (2048, False, None, False, "worst ≥ 1.17 in 10 s", "> 120 s"),
    (2048, True, None, False, "", "not tried"),
    (128, True, 1, True, "", "13.1 s, 1.268"),
    (256, True, 1, True, "", "> 120 s"),
)
# Jobs, GPUs, and seconds of Sia's CBC, median / most, as measured beside HiGHS and GLPK.
SIA = (
    (16, 64, ".016 / .028"),
    (64, 256, ".061 / .065"),
    (256, 1024, ".17 / 3.6"),
    (512, 2048, "1.7 / 2.3 (GLPK > 120)"),
    (64, 64, ".040 / .046"),
    (256, 256, ".17 / .18 (GLPK > 120)"),
    (512, 512, ".29 / .37"),
    (1024, 1024, ".62 / .83"),
    (2048, 2048, "1.6 / 2.0"),
)


def line(cells: Sequence[object]) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def head(cells: Sequence[str]) -> None:
    line(cells)
    line(["---"] * len(cells))


def gavel(rates: Rates, seeds: int) -> None:
    head(
        [
            "Gavel: jobs / GPUs",
            "what",
            "seconds (most)",
            "worst (least)",
            "no shares exceed",
            "mean",
            "goal",
            "Gavel",
        ]
    )
    for size, pairs, rounds, job_by_job, goal, peer in GAVEL:
        every = [
            solve_gavel(rates, size, seed, pairs=pairs, rounds=rounds, single=False, job_by_job=job_by_job)
            for seed in range(1 if job_by_job else seeds)
        ]
        what = ("pairs, " if pairs else "") + ("max-min, then sum" if rounds else "all levels, then sum")
        worst, seconds = [each.worst for each in every], [each.seconds for each in every]
        line(
            [
                f"{size} / {size}",
                what + (", a variable per job" if job_by_job else ""),
                f"{np.median(seconds):.3f} ({max(seconds):.3f})",
                f"{np.median(worst):.4f} ({min(worst):.4f})",
                f"{np.median([each.bound for each in every]):.4f}",
                f"{np.median([each.mean for each in every]):.3f}",
                goal,
                peer,
            ]
        )


def sia(stick: Path, replans: int, clock: Callable[[], float]) -> None:
    head(
        [
            "Sia: jobs / GPUs",
            "first plan s",
            f"{replans} re-plans: median / p99 s",
            "HiGHS s",
            "above HiGHS",
            "above bound",
            "re-plans, most above bound",
            "moves, unchanged",
            "CBC s",
        ]
    )
    for jobs, gpus, peer in SIA:
        found = measure_sia(stick, jobs, gpus, replans=replans, noise=0.05, seed=0, clock=clock)
        line(
            [
                f"{jobs} / {gpus}",
                f"{found.first_s:.2f}",
                f"{np.median(found.seconds):.3f} / {np.quantile(found.seconds, 0.99):.3f}",
                f"{found.highs_s:.2f}",
                f"{found.against_highs:.1e}",
                f"{found.against_bound:.1e}",
                f"{found.replans_against_bound:.1e}",
                found.moved_unchanged,
                peer,
            ]
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with Gavel's throughputs")
    parser.add_argument("--stick", type=Path, help="folder with Sia's profiles and workloads")
    parser.add_argument("--seeds", type=int, default=5, help="drawn sets of jobs per Gavel row")
    parser.add_argument("--replans", type=int, default=20, help="noisy re-plans per Sia row")
    parser.add_argument(
        "--cpu-clock", action="store_true", help="count this process's CPU seconds in Sia's rows, not wall"
    )
    given = parser.parse_args()
    gavel(read_rates(given.data), given.seeds)
    if given.stick is not None:
        print()
        sia(given.stick, given.replans, time.process_time if given.cpu_clock else time.perf_counter)


if __name__ == "__main__":
    main()
