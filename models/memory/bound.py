"""The upper bound of peak memory: it grows with batch and length, and holds for another run.

    U(p) = min(over measured q ≥ p: B(q),  max(over measured q ≤ p: B(q),  M(p)))

B is what was measured with the reserve for another run, raised to that of every smaller measured
place; M is the fitted form at its worst ratio to a measured point, with the error of groups left
out of the fit and the reserve. Every part grows with batch and length, so U does, whatever bumps the
allocator left in the points; at a measured place U is B.

The reserve is what a peak may differ by between two runs of the same step on the same stack:

    reserve = mib + share · (peak − states), MiB

`mib` is the most that allocated peaks differed by (cuBLAS workspaces and buffers that earlier shapes of
the process left behind), `share` the conformal 95 % quantile of what is left of the difference of reserved
peaks, as a share of what moves with the shape. Both stand in the file of the GPU class (`runs`);
`benchmarks/memory_runs.py` derives them from two sets of the same 76 shapes on H200.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from libra_plan.models.costs.base import Array, Flags, Places, places_of
from libra_plan.models.curves.curve import MARGIN, REPEAT_NOISE, Curve
from libra_plan.profiles.hardware import gpu_class

__all__ = ["MemoryBound", "RunReserve", "run_reserve"]


@dataclass(frozen=True, slots=True)
class RunReserve:
    """Room for another run: `mib` whatever the shape, and a `share` of what moves with it."""

    mib: float
    share: float

    def above(self, peaks_mib: Array, states_mib: float) -> Array:
        """Return the MiB to keep free above peaks of which `states_mib` lie still."""
        room: Array = self.mib + self.share * np.maximum(peaks_mib - states_mib, 0.0)
        return room


def run_reserve(class_name: str) -> RunReserve:
    """Return the reserve of a GPU class."""
    runs = gpu_class(class_name).runs
    return RunReserve(runs.reserve_mib, runs.reserve_share)


class MemoryBound:
    """The upper bound of one fitted memory; `states_mib` lie still whatever the shape."""

    def __init__(self, curve: Curve, states_mib: float, reserve: RunReserve) -> None:
        self._reserve = reserve
        self._curve = curve
        self._at = places_of([sample.place for sample in curve.samples])
        values = np.array([sample.value for sample in curve.samples])
        self._smallest = float(values.min())
        self._states = min(states_mib, self._smallest)
        self._worst = float((values / np.maximum(curve.form.predict(self._at), 1e-12)).max())
        highest = np.array([sample.high for sample in curve.samples])
        own = np.maximum(highest, values * (1 + REPEAT_NOISE)) + self._reserve.above(values, self._states)
        smaller = _at_most(self._at, self._at)  # row: place, column: measured place
        self._bounds = np.where(smaller, own, 0.0).max(axis=1)
        self._values = values

    def at(self, places: Places) -> Array:
        """Bound the peaks of places (rows, 3) anywhere, MiB, with a margin above what was measured."""
        return self._upper(places, self._log_errors(places))

    def least(self, places: Places) -> Array:
        """Return the largest measured peak of a run no larger in any part, MiB; 0 without one."""
        largest: Array = np.where(_at_most(self._at, places), self._values, 0.0).max(axis=1)
        return largest

    def covered(self, places: Places) -> Flags:
        """Return which places a measured run at least as large in all parts bounds."""
        held: Flags = np.any(_at_most(places, self._at), axis=0)
        return held

    def _log_errors(self, places: Places) -> Array:
        curve = self._curve
        beyond = np.maximum(0.0, np.log2(places[:, 2] / curve.outputs[1]))
        above = curve.domain.above(np.log2(places[:, :2])) + beyond
        outside = curve.outside_high + np.where(above > 1 + 1e-9, MARGIN * above, 0.0)
        errors: Array = np.where(above == 0.0, curve.inside_high, outside)
        return errors

    def _upper(self, places: Places, log_errors: Array) -> Array:
        formed = np.maximum(self._curve.form.predict(places) * self._worst, self._smallest)
        modelled = formed * np.exp(log_errors) + self._reserve.above(formed, self._states)
        below = np.where(_at_most(self._at, places), self._bounds, 0.0).max(axis=1)
        above = np.where(_at_most(places, self._at).T, self._bounds, np.inf).min(axis=1)
        upper: Array = np.minimum(above, np.maximum(below, modelled))
        return upper


def _at_most(smaller: Places, larger: Places) -> Flags:
    """Return for each row of `larger` which rows of `smaller` are no larger in all three parts."""
    fits = smaller[None, :, :] <= larger[:, None, :]
    held: Flags = fits[:, :, 0] & fits[:, :, 1] & fits[:, :, 2]
    return held
