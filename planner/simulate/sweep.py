"""Worlds × policies × seeds, one run after the other or spread by joblib over processes and machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from libra_plan.planner.simulate.bound import upper_bound
from libra_plan.planner.simulate.engine import simulate
from libra_plan.planner.simulate.parallel import in_parallel
from libra_plan.planner.simulate.policies import make_policy
from libra_plan.planner.simulate.record import Record
from libra_plan.planner.simulate.report import Figures, References, figures_of
from libra_plan.planner.simulate.world import World

__all__ = ["Case", "run_case", "sweep"]


@dataclass(frozen=True)
class Case:
    """One run to make. `keep_stages`: with all stages, for traces."""

    world: World
    policy: str
    seed: int
    keep_stages: bool = False


def run_case(case: Case, progress: Callable[[float], None] | None = None) -> tuple[Figures, Record]:
    """Make one run and add it up."""
    record = simulate(
        case.world, make_policy(case.policy), case.seed, keep_stages=case.keep_stages, progress=progress
    )
    bound = _bound(case.world, case.seed)
    return figures_of(record, case.world, _references(case.world), bound), record


@lru_cache(maxsize=8)
def _references(world: World) -> References:
    """Price the references of a world once for all of its runs in this process."""
    return References(world)


@lru_cache(maxsize=32)
def _bound(world: World, seed: int) -> float:
    """Prove a bound once for all policies under a seed."""
    return upper_bound(world, seed, _references(world))


def sweep(
    cases: Sequence[Case], jobs: int, backend: str, progress: Callable[[float], None] | None = None
) -> Iterator[tuple[Figures, Record]]:
    """Make all runs; results come in the order of the cases. `progress` is told the share that is done."""
    if jobs == 1 and backend == "loky":
        for number, case in enumerate(cases):
            yield run_case(case, _part_of(progress, number, len(cases)))
        return
    for number, found in enumerate(in_parallel(run_case, cases, jobs, backend), start=1):
        if progress is not None:
            progress(number / len(cases))
        yield found


def _part_of(
    progress: Callable[[float], None] | None, number: int, count: int
) -> Callable[[float], None] | None:
    return None if progress is None else lambda share: progress((number + share) / count)
