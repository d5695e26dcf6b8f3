"""Worlds × policies × seeds, one run after the other or spread by joblib over processes and machines."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from libra_plan.errors import InputError
from libra_plan.planner.simulate.bound import upper_bound
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.figures import Figures, References, figures_of
from libra_plan.planner.simulate.policies import make_policy
from libra_plan.planner.simulate.record import RunRecord
from libra_plan.planner.simulate.world import World

__all__ = ["Case", "in_parallel", "run_case", "sweep"]

_CALLS_PER_WORKER = 4
"""Ray gives results back in lots: so many calls for each worker."""

Given = TypeVar("Given")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Case:
    """One run to make. `keep_stages`: with all stages, for traces and pictures."""

    world: World
    policy: str
    seed: int
    keep_stages: bool = False


def run_case(case: Case, progress: Callable[[float], None] | None = None) -> tuple[Figures, RunRecord]:
    """Make one run and compute its figures."""
    policy = make_policy(case.policy)
    record = run_world(case.world, policy, case.seed, keep_stages=case.keep_stages, progress=progress)
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
    cases: Sequence[Case],
    jobs: int = 1,
    backend: str = "loky",
    progress: Callable[[float], None] | None = None,
) -> Iterator[tuple[Figures, RunRecord]]:
    """Make all runs; results come in the order of the cases. `progress` receives the share that is done."""
    tell = progress or (lambda share: None)
    if jobs == 1 and backend == "loky":
        for number, case in enumerate(cases):
            yield run_case(case, lambda share, done=number: tell((done + share) / len(cases)))  # type: ignore[misc]
        return
    for number, found in enumerate(in_parallel(run_case, cases, jobs, backend), start=1):
        tell(number / len(cases))
        yield found


def in_parallel(
    call: Callable[[Given], Result], given: Sequence[Given], jobs: int, backend: str
) -> Iterator[Result]:
    """Return what a function makes of each thing given, in their order, `jobs` at a time.

    Dask and Ray join the cluster that `DASK_SCHEDULER_ADDRESS` or `RAY_ADDRESS` names; without it they start
    workers on this machine, and stop them at the end.
    """
    try:
        import joblib

        own = {"dask": _dask, "ray": _ray}
        start = own[backend](jobs) if backend in own else ExitStack()
    except ImportError as missing:
        raise InputError(
            f"runs in parallel by {backend} need a package that is not installed",
            got=str(missing),
            way_out="pip install 'libra-plan[sweep]' (and dask[distributed], or ray), or --jobs 1",
        ) from None
    with start, joblib.parallel_config(backend=backend, n_jobs=jobs):
        one = joblib.delayed(call)
        if backend == "ray":  # its backend gives back lists only
            lot = jobs * _CALLS_PER_WORKER
            with joblib.Parallel() as parallel:
                for first in range(0, len(given), lot):
                    yield from parallel(one(each) for each in given[first : first + lot])
            return
        results = joblib.Parallel(return_as="generator")(one(each) for each in given)
        try:
            for each in results:  # noqa: UP028 - `yield from` would close them itself, with a warning
                yield each
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that what nobody waits for is cancelled
                results.close()


def _dask(jobs: int) -> Any:
    """Join a Dask cluster, or start one here, for as long as the context lasts."""
    import dask
    from dask.distributed import Client

    address = dask.config.get("scheduler-address", None)
    if address is not None:
        return Client(address)
    return Client(n_workers=jobs, threads_per_worker=1, dashboard_address=None)


def _ray(jobs: int) -> Any:
    """Join a Ray cluster, or start one here, for as long as the context lasts."""
    import ray
    from ray.util.joblib import register_ray

    register_ray()
    if os.environ.get("RAY_ADDRESS"):
        return ray.init(log_to_driver=False)
    return ray.init(num_cpus=jobs, include_dashboard=False, log_to_driver=False)
