"""Find the micro-batches, or sequences at once, that fit in the stated or recorded memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from libra_plan.errors import InputError
from libra_plan.models.batch import (
    BatchAdvice,
    BatchState,
    engine_need,
    profile_need,
    recommend_batch,
    rollout_batch,
    training_batch,
)
from libra_plan.models.fits import cached_fit
from libra_plan.models.parallelism import Layout
from libra_plan.planner.telemetry.recording import RecordingReader
from libra_plan.planner.telemetry.summary import main_process_memory_by_window
from libra_plan.profiles.catalog import LoadedProfile, find_profile, load_profile
from libra_plan.profiles.document import shown
from libra_plan.profiles.traces import read_trace

__all__ = ["BatchSize", "BatchSizes", "batch_sizes"]


@dataclass(frozen=True, slots=True)
class BatchSize:
    """One size: the upper bound of its memory (None outside the profile), and whether it fits."""

    size: int
    accumulation: int | None
    needed_mib: float | None
    fits: bool
    fits_with_margin: bool


@dataclass(frozen=True, slots=True)
class BatchSizes:
    """Every size, and the advice after the last of `windows` windows, in which `changes` were advised."""

    sizes: tuple[BatchSize, ...]
    advice: BatchAdvice
    windows: int
    changes: int

    @property
    def largest(self) -> int | None:
        """The largest size that fits with the margin."""
        return max((each.size for each in self.sizes if each.fits_with_margin), default=None)


def batch_sizes(
    profile: str | Path,
    lengths: str | Path,
    *,
    limit_mib: float | None = None,
    recording: str | Path | None = None,
    window_s: float = 60.0,
    current: int = 1,
    samples_per_rank: int | None = None,
    most: int = 1024,
    tp: int = 1,
    dp: int = 1,
) -> BatchSizes:
    r"""Find which micro-batch, or how many sequences at once, fit in memory, and the next step towards it.

    Parameters
    ----------
    profile
        A train, decode or serve profile: its folder, or a known name.
    lengths
        A file with the lengths of sequences, one a line: prompt and response (decode: at the end).
    limit_mib
        Memory the role can have on a GPU, MiB.
    recording
        A recording of its GPUs by `monitor`, instead of `limit_mib`; it is gone through by window.
    window_s
        Window of the recording, seconds.
    current
        Micro-batch, or sequences at once, now.
    samples_per_rank
        Training: global batch ÷ data-parallel ranks.
    most
        Decoding: sequences at once that are worth having.
    tp, dp
        Tensor-parallel and data-parallel ranks.

    Returns
    -------
    BatchSizes
        Every size with what it needs and whether it fits, and the advice for the next window.

    Raises
    ------
    InputError
        If the memory, or the batch of a training rank, is not known, or a file is wrong.
    RefusedError
        If not even the smallest size fits.

    Examples
    --------
    >>> import libra_plan as lp
    >>> from pathlib import Path
    >>> _ = Path("lengths.txt").write_text("2048\n" * 8)
    >>> found = lp.batch_sizes(
    ...     "h200-qwen2.5-1.5b-train", "lengths.txt", limit_mib=60_000, samples_per_rank=32
    ... )
    >>> found.largest
    8
    """
    loaded = load_profile(find_profile(profile))
    state = _begin(loaded, samples_per_rank, current, most)
    limits = _limits(limit_mib, recording, window_s)
    trace, layout = read_trace(Path(lengths)), Layout(tp)
    if loaded.file.phase == "serve":
        need = engine_need(loaded.file, trace, layout)
    else:
        need = profile_need(cached_fit(loaded), trace, layout, dp)
    changes = 0
    for limit in limits:
        advice = recommend_batch(state, need_mib=need, limit_mib=limit)
        changes, state = changes + advice.changed, advice.state
    sizes = tuple(_size(size, need(size), limits[-1], state) for size in state.sizes)
    return BatchSizes(sizes, advice, len(limits), changes)


def _begin(loaded: LoadedProfile, samples_per_rank: int | None, current: int, most: int) -> BatchState:
    phase = loaded.file.phase
    if phase in ("decode", "serve"):
        return rollout_batch(current, most)
    if phase != "train":
        raise InputError("a batch is recommended from a train, decode or serve profile", got=f"phase {phase}")
    if samples_per_rank is None:
        raise InputError(
            "a training rank's batch must be known",
            got="no samples_per_rank (--samples-per-rank)",
            way_out="add it: the optimizer's batch divided by the data-parallel ranks",
        )
    return training_batch(samples_per_rank, current)


def _limits(limit_mib: float | None, recording: str | Path | None, window_s: float) -> Sequence[float]:
    """Return the available memory: as stated, or of every window of a recording."""
    if (limit_mib is None) == (recording is None):
        raise InputError(
            "how much memory there is must be known",
            allowed="one of limit_mib (--limit-mib), recording (--recording)",
        )
    if recording is None:
        return [limit_mib or 0.0]
    found = list(main_process_memory_by_window(RecordingReader(Path(recording)), window_s))
    if not found:
        raise InputError(
            "the recording does not tell whose memory is whose",
            got=shown(recording),
            allowed="samples with total and used memory, and the processes that hold it",
            way_out="record outside of the container, or state limit_mib (--limit-mib)",
        )
    return found


def _size(size: int, needed_mib: float, limit_mib: float, state: BatchState) -> BatchSize:
    samples = state.samples_per_rank
    return BatchSize(
        size,
        None if samples is None else samples // size,
        needed_mib if math.isfinite(needed_mib) else None,
        needed_mib <= limit_mib,
        needed_mib * (1 + state.margin) <= limit_mib,
    )
