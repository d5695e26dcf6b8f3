"""What a peak may differ by between two runs of the same step on the same stack: room to keep free.

    reserve = mib + share · (peak - states), MiB

Two sets of H200 measurements (`profiles/h200-*` and `h200b-*`: same driver, CUDA, torch and
transformers, another card, another process) hold the same 76 shapes twice.

- `mib` is the most that *allocated* peaks differed by: cuBLAS workspaces and buffers that earlier
  shapes of the process left behind, the same at every shape of a model.
- `share` is the conformal 95 % quantile of what is left of the difference of *reserved* peaks, as
  a share of what moves with the shape (the peak less weights or training states, which lie still):
  segments that the allocator caches for earlier shapes, and the holes in them.

Profiles of other stacks take the same figures, for want of two runs of theirs.
`benchmarks/memory_runs.py` derives them, and prints how they do on a model left out; a test compares.

The upper bound of peak memory: it grows with batch and length, and holds for another run.

    U(p) = min(over measured q ≥ p: B(q),  max(over measured q ≤ p: B(q),  M(p)))

B is what was measured with the reserve for another run, raised to that of every smaller measured
place; M is the fitted form at its worst ratio to a measured point, with the error of groups left
out of the fit and the reserve. Every part grows with batch and length, so U does, whatever bumps the
allocator left in the points; at a measured place U is B.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libra_plan.models.costs.base import Array, Places, places_of
from libra_plan.models.curves.curve import MARGIN, REPEAT_NOISE, Curve

__all__ = ["RUN_RESERVE", "MemoryBound", "RunReserve"]


@dataclass(frozen=True, slots=True)
class RunReserve:
    """Room for another run: `mib` whatever the shape, and a `share` of what moves with it."""

    mib: float
    share: float

    def above(self, peaks_mib: Array, states_mib: float) -> Array:
        """Give the MiB to keep free above peaks of which `states_mib` lie still."""
        room: Array = self.mib + self.share * np.maximum(peaks_mib - states_mib, 0.0)
        return room


RUN_RESERVE = RunReserve(mib=1088.1, share=0.2424)


class MemoryBound:
    """The upper bound of one fitted memory; `states_mib` lie still whatever the shape."""

    def __init__(self, curve: Curve, states_mib: float, reserve: RunReserve = RUN_RESERVE) -> None:
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
        """Give the largest measured peak of a run no larger in any part, MiB; 0 without one."""
        largest: Array = np.where(_at_most(self._at, places), self._values, 0.0).max(axis=1)
        return largest

    def covered(self, places: Places) -> NDArray[np.bool_]:
        """Tell which places a measured run at least as large in all parts bounds."""
        held: NDArray[np.bool_] = np.any(_at_most(places, self._at), axis=0)
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


def _at_most(smaller: Places, larger: Places) -> NDArray[np.bool_]:
    """Tell, row by row of `larger`, which rows of `smaller` it holds in all three parts."""
    fits = smaller[None, :, :] <= larger[:, None, :]
    held: NDArray[np.bool_] = fits[:, :, 0] & fits[:, :, 1] & fits[:, :, 2]
    return held
