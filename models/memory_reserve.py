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
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from libra_plan.models.nnls import Array

__all__ = ["RUN_RESERVE", "RunReserve"]


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
