"""Measure the optimizer at cluster scale: `scale.py --gpus N --tasks T [--case FILE] [--running]`.

With `--policy NAME`, or `all`, whole solves under that policy are measured instead, verified; with `--warm`
twice, the second time with the columns that the first kept on disk.

Prints JSON lines: one per improvement, then a summary. Wall seconds are what a user waits; CPU
seconds are given beside them, since a busy machine stretches the former only. Ctrl-C ends the search: the
summary then tells the best so far with its bound, nothing further is run, and the exit code is 130.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from allocation_case import Allocation, after, read_case
from allocation_generate import from_inventory, generate
from scale_policies import POLICIES, lines

from libra_plan.planner.optimize.colgen.arrays import Floats
from libra_plan.planner.optimize.colgen.search import Answer, Limits, optimise

MARKS_S = (1.0, 2.0, 5.0, 30.0)

Seen = tuple[float, float, float, float]
"""Objective, bound, gap and seconds that a search tells on its way."""


def main() -> None:
    options = _options()
    if options.policy:
        for told in lines(options):
            print(json.dumps(told), flush=True)
        return
    case = _case(options)
    _hear_interrupts()
    for line in _runs(case, options):
        print(json.dumps(line), flush=True)
        if pressed:
            raise SystemExit(128 + signal.SIGINT)


def _runs(case: dict[str, Any], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    limits = Limits(options.time_limit, options.gap, seed=options.seed)
    allocation = Allocation(case)
    answer, line = measure("fresh", allocation, limits, options)
    yield line
    if options.running:
        plan = allocation.place(answer.chosen)
        if plan is None:
            raise SystemExit("the plan to run could not be placed")
        prices = by_name(allocation.resources.names, answer.prices)
        same = after(case, plan, answer.chosen)
        staying = replace(limits, kept_gap=answer.priced_gap)
        yield measure("unchanged", same, staying, options, prices)[1]
        changed = after(changed_case(case, options.seed), plan, answer.chosen)
        yield measure("arrival and failure", changed, limits, options, prices)[1]


def by_name(names: Sequence[str], prices: Floats) -> dict[str, float]:
    """Name the prices by their rows."""
    return {name: float(price) for name, price in zip(names, prices, strict=True)}


def on_rows(names: Sequence[str], known: Mapping[str, float]) -> Floats:
    """Put known prices on rows; rows that are new cost nothing."""
    return np.array([known.get(name, 0.0) for name in names])


pressed: list[int] = []
"""Interrupts so far: whoever presses Ctrl-C once wants the best there is now; twice, to leave."""


def _hear_interrupts() -> None:
    def hear(number: int, _: object) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, hear)
        print("searching; Ctrl-C takes the best so far", file=sys.stderr, flush=True)


def _case(options: argparse.Namespace) -> dict[str, Any]:
    if options.case:
        return read_case(options.case)
    if options.inventory:
        return from_inventory(options.inventory, options.tasks, options.seed)
    return generate(options.gpus // 8, options.tasks, options.seed)


def _name(options: argparse.Namespace) -> str:
    source = options.case or options.inventory
    return source.name if source else f"generated, seed {options.seed}"


def changed_case(case: dict[str, Any], seed: int) -> dict[str, Any]:
    """Let a node fail and a task like one of the others arrive."""
    rng = np.random.default_rng(seed + 1)
    changed = copy.deepcopy(case)
    changed["cluster"].pop(int(rng.integers(len(changed["cluster"]))))
    arrived = copy.deepcopy(changed["work"][int(rng.integers(len(changed["work"])))])
    arrived["id"] = 1 + max(task["id"] for task in changed["work"])
    changed["work"].append(arrived)
    return changed


def measure(
    name: str,
    allocation: Allocation,
    limits: Limits,
    options: argparse.Namespace,
    before: dict[str, float] | None = None,
) -> tuple[Answer, dict[str, Any]]:
    """Solve, place, and describe what was seen."""
    seen: list[Seen] = []
    cpu = time.process_time()
    began = time.monotonic()
    answer = _searched(allocation, limits, options, before, seen)
    wall, cpu = time.monotonic() - began, time.process_time() - cpu
    if options.progress:
        for objective, bound, gap, seconds in seen:
            print(json.dumps({"s": round(seconds, 3), "objective": objective, "bound": bound, "gap": gap}))
    began = time.monotonic()
    plan = allocation.place(answer.chosen)
    value = None if plan is None else allocation.value(plan)
    case = allocation.case
    return answer, {
        "run": name,
        "interrupted": bool(pressed),
        "case": _name(options),
        "gpus": sum(len(node["usable_gpus"]) for node in case["cluster"]),
        "tasks": len(case["work"]),
        "clock": "cpu" if options.cpu_clock else "wall",
        "wall_s": round(wall, 3),
        "cpu_s": round(cpu, 3),
        "place_s": round(time.monotonic() - began, 3),
        "first_s": round(seen[0][3], 3) if seen else None,
        "objective": answer.objective,
        "bound": answer.bound,
        "gap": answer.gap,
        "placed_objective": value,
        "placed_gap": None if value is None else (answer.bound - value) / value,
        **{f"gap_{mark:g}s": _gap_at(seen, mark) for mark in MARKS_S},
        "moved_gpus": None if plan is None else plan["moved_gpus"],
        "columns": answer.columns,
        "rounds": answer.rounds,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "best_objective_known": case["best_objective_known"],
        "best_bound_known": case["best_bound_known"],
    }


def _searched(
    allocation: Allocation,
    limits: Limits,
    options: argparse.Namespace,
    before: dict[str, float] | None,
    seen: list[Seen],
) -> Answer:
    """Search from the prices before, and note in `seen` what is told on the way."""
    return optimise(
        allocation.resources,
        allocation.oracles,
        limits,
        progress=lambda *look: seen.append(look),
        stop=lambda: bool(pressed and seen and np.isfinite(seen[-1][1])),
        prices=None if before is None else on_rows(allocation.resources.names, before),
        running=allocation.keeping(),
        lacking=allocation.lacking,
        worth=allocation.worth if allocation.running else None,
        clock=time.process_time if options.cpu_clock else time.monotonic,
    )


def _gap_at(seen: list[Seen], mark: float) -> float | None:
    gaps = [gap for _, _, gap, seconds in seen if seconds <= mark]
    return gaps[-1] if gaps else None


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1024)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--case", type=Path)
    parser.add_argument("--inventory", type=Path, help="CSV of real nodes to generate tasks for")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--running", action="store_true")
    parser.add_argument("--policy", choices=[*POLICIES, "all"], help="measure whole solves under a policy")
    parser.add_argument(
        "--kinds", type=int, help="kinds of tasks for --policy; as many as tasks unless given"
    )
    parser.add_argument("--warm", action="store_true", help="with --policy: keep columns, and solve again")
    parser.add_argument(
        "--cpu-clock", action="store_true", help="count this process's CPU seconds instead of wall"
    )
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--gap", type=float, default=1e-4)
    options = parser.parse_args()
    if options.policy and (options.running or options.case or options.inventory):
        parser.error("--policy measures generated problems where nothing runs yet")
    return options


if __name__ == "__main__":
    main()
