"""Make calls in parallel by joblib: in its own processes, on a Dask cluster or on a Ray cluster."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from libra_plan.errors import InputError

__all__ = ["in_parallel"]

_TURNS = 4
"""Ray gives results back in lots: so many calls for each worker."""

Given = TypeVar("Given")
Found = TypeVar("Found")


def in_parallel(
    call: Callable[[Given], Found], given: Sequence[Given], jobs: int, backend: str
) -> Iterator[Found]:
    """Give what a function finds for each thing given, in their order, `jobs` at a time.

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
            with joblib.Parallel() as parallel:
                for first in range(0, len(given), jobs * _TURNS):
                    yield from parallel(one(each) for each in given[first : first + jobs * _TURNS])
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
