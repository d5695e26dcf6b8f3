"""Step a batch to what memory allows, one step a window, with hysteresis.

    state = training_batch(samples_per_rank=64, micro_batch_sequences=4)
    advice = libra_plan.recommend_batch(state, need_mib=need, limit_mib=70_000)
    state = advice.state            # and run the next window with advice.size

The optimizer's batch never changes: a training rank takes the same samples in other micro-batches.
The caller says what memory a size needs; `profile_need` and `engine_need` are two models of it, from a
profile and from an engine's own figures. See docs/batch_control.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from libra_plan.errors import InputError, RefusedError

if TYPE_CHECKING:
    from libra_plan.models.fit import FittedProfile
    from libra_plan.models.parallelism import Layout
    from libra_plan.profiles.schema import ProfileFile

__all__ = [
    "BatchAdvice",
    "BatchState",
    "cache_need",
    "engine_need",
    "profile_need",
    "recommend_batch",
    "rollout_batch",
    "token_batch",
    "training_batch",
]

MARGIN = 0.1
PATIENCE = 3
_MOST_PATIENCE = 96


@dataclass(frozen=True, slots=True)
class BatchState:
    """The state of a batch: its possible `sizes`, ascending, and the index of the present one.

    `samples_per_rank` is the fixed batch of a training rank, sequences. A larger size is taken
    after `patience` windows in a row with room for it and `margin` more (`roomy` of them have been);
    every fall doubles the patience.
    """

    sizes: tuple[int, ...]
    place: int
    samples_per_rank: int | None = None
    margin: float = MARGIN
    patience: int = PATIENCE
    roomy: int = 0

    def __post_init__(self) -> None:
        """Refuse a margin that would let a batch grow beyond the memory."""
        if not 0 <= self.margin < math.inf:
            raise InputError("a margin is a share of the memory", got=self.margin, allowed="at least 0")

    @property
    def size(self) -> int:
        """The present size."""
        return self.sizes[self.place]


@dataclass(frozen=True, slots=True)
class BatchAdvice:
    """The size for the next window: sequences of a micro-batch, tokens of one, or sequences at once.

    `accumulation` is how many micro-batches of it make a training rank's batch; None elsewhere.
    `needed_mib` is the upper bound of what it needs; `reason` says why it changed, or did not.
    """

    size: int
    accumulation: int | None
    changed: bool
    reason: str
    needed_mib: float
    limit_mib: float
    state: BatchState


def training_batch(
    samples_per_rank: int, micro_batch_sequences: int = 1, *, margin: float = MARGIN
) -> BatchState:
    """Return the first state of micro-batches; sizes are the divisors of the rank's batch, all ≥ 1."""
    if samples_per_rank < 1:
        raise InputError(
            "a rank without samples cannot train",
            got=f"{samples_per_rank} samples per rank",
            allowed="at least 1: global batch ÷ data-parallel ranks",
            way_out="use fewer data-parallel ranks or a larger batch",
        )
    small = [size for size in range(1, math.isqrt(samples_per_rank) + 1) if samples_per_rank % size == 0]
    sizes = tuple(sorted({*small, *(samples_per_rank // size for size in small)}))
    if micro_batch_sequences not in sizes:
        raise InputError(
            "a micro-batch divides the rank's batch",
            got=f"micro_batch_sequences {micro_batch_sequences}",
            allowed=", ".join(map(str, sizes[:12])) + (", …" if len(sizes) > 12 else ""),
            way_out="choose a divisor of the rank's samples: the optimizer's batch stays as it is",
        )
    return BatchState(sizes, sizes.index(micro_batch_sequences), samples_per_rank, margin)


def token_batch(longest_tokens: int, micro_batch_tokens: int, most_tokens: int) -> BatchState:
    """Return the first state of packed micro-batches; no token budget is below the longest sequence."""
    if longest_tokens < 1:
        raise InputError("a sequence has at least one token", got=f"longest_tokens {longest_tokens}")
    if micro_batch_tokens < longest_tokens:
        raise InputError(
            "the longest sequence does not fit in a micro-batch",
            got=f"micro_batch_tokens {micro_batch_tokens}",
            allowed=f"at least the {longest_tokens} tokens of the longest",
            way_out="raise micro_batch_tokens, or cut the lengths",
        )
    sizes = sorted({micro_batch_tokens, *_rungs(longest_tokens, max(most_tokens, micro_batch_tokens))})
    return BatchState(tuple(sizes), sizes.index(micro_batch_tokens))


def rollout_batch(concurrency: int, most: int, *, margin: float = MARGIN) -> BatchState:
    """Return the first state of sequences that an engine runs at once, for sizes up to `most`."""
    if concurrency < 1:
        raise InputError("an engine runs at least one sequence", got=f"concurrency {concurrency}")
    sizes = sorted({concurrency, *_rungs(1, max(most, concurrency))})
    return BatchState(tuple(sizes), sizes.index(concurrency), margin=margin)


def recommend_batch(
    state: BatchState,
    *,
    need_mib: Callable[[int], float],
    limit_mib: float,
    most_useful: int | None = None,
) -> BatchAdvice:
    """Recommend the size of a batch for the next window.

    A size that no longer fits is left at once, for the largest below it that does; a larger one is taken
    a step at a time, after room for it in several windows.

    Parameters
    ----------
    state
        Where the batch stands, from `training_batch`, `token_batch`, `rollout_batch` or the last advice.
    need_mib
        The upper bound of the memory that a size needs, MiB per GPU, over the rank where it is tightest.
    limit_mib
        The memory there is, likewise.
    most_useful
        Sequences that wait: a larger size would have nothing to do.

    Returns
    -------
    BatchAdvice
        The size, why it changed or did not, and the state to go on with.

    Raises
    ------
    RefusedError
        If not even the smallest size fits.
    InputError
        If `limit_mib` is not above 0.

    Examples
    --------
    >>> import libra_plan as lp
    >>> from libra_plan.models.batch import training_batch
    >>> state = training_batch(samples_per_rank=64, micro_batch_sequences=8)
    >>> lp.recommend_batch(state, need_mib=lambda size: 1000.0 * size, limit_mib=5000.0).size
    4
    """
    if not limit_mib > 0:
        raise InputError("memory that is free is a number above 0", got=f"limit_mib={limit_mib}")
    now_mib = need_mib(state.size)
    if not now_mib <= limit_mib:
        return _fall(state, need_mib, limit_mib, now_mib)
    if state.place + 1 == len(state.sizes):
        return _advise(replace(state, roomy=0), False, "the largest size there is", now_mib, limit_mib)
    larger = state.sizes[state.place + 1]
    if most_useful is not None and larger > most_useful:
        said = f"{larger} is more than there is to do ({most_useful})"
        return _advise(replace(state, roomy=0), False, said, now_mib, limit_mib)
    wanted_mib = need_mib(larger)
    if not wanted_mib * (1 + state.margin) <= limit_mib:
        said = f"{larger} needs {wanted_mib:.0f} MiB and {state.margin:.0%} to spare"
        return _advise(replace(state, roomy=0), False, said, now_mib, limit_mib)
    if state.roomy + 1 < state.patience:
        roomy = state.roomy + 1
        said = f"room for {larger} in {roomy} of {state.patience} windows"
        return _advise(replace(state, roomy=roomy), False, said, now_mib, limit_mib)
    risen = replace(state, place=state.place + 1, roomy=0)
    said = f"room for {larger} in {state.patience} windows"
    return _advise(risen, True, said, wanted_mib, limit_mib)


def _fall(
    state: BatchState, need_mib: Callable[[int], float], limit_mib: float, now_mib: float
) -> BatchAdvice:
    for place in range(state.place - 1, -1, -1):
        needed_mib = need_mib(state.sizes[place])
        if needed_mib <= limit_mib:
            patience = min(2 * state.patience, _MOST_PATIENCE)
            fallen = replace(state, place=place, roomy=0, patience=patience)
            said = f"{state.size} needs up to {now_mib:.0f} MiB"
            return _advise(fallen, True, said, needed_mib, limit_mib)
    raise RefusedError(
        "not even the smallest size fits",
        got=f"{need_mib(state.sizes[0]):.0f} MiB needed for {state.sizes[0]}",
        allowed=f"at most {limit_mib:.0f} MiB",
        way_out="shorter sequences, more GPUs per replica, or less beside it on the GPU",
    )


def _advise(
    state: BatchState, changed: bool, reason: str, needed_mib: float, limit_mib: float
) -> BatchAdvice:
    accumulation = None if state.samples_per_rank is None else state.samples_per_rank // state.size
    return BatchAdvice(state.size, accumulation, changed, reason, needed_mib, limit_mib, state)


def _rungs(least: int, most: int) -> list[int]:
    """Return least × 1, 2, 3, 4, 6, 8, 12, … up to `most`."""
    rungs, power = [least], 2
    while least * power <= most:
        rungs.append(least * power)
        if least * power * 3 // 2 <= most:
            rungs.append(least * power * 3 // 2)
        power *= 2
    return rungs


_ACCUMULATED = 2  # micro-batches: all but the first find gradients there, and a smaller size makes more


def cache_need(
    lengths_tokens: Sequence[int], *, fixed_mib: float, per_token_mib: float
) -> Callable[[int], float]:
    """Bound what an engine needs for n sequences at once: the n longest of the lengths, all at their end.

    `fixed_mib`: weights and what else is there with an empty cache; `per_token_mib`: keys and values
    of a token on one GPU (`kv_mib_per_token`). Beyond the lengths known, all further
    sequences are as long as the longest.
    """
    falling = sorted(map(float, lengths_tokens), reverse=True)
    if not falling:
        raise RefusedError("no length is known", way_out="give the lengths of earlier sequences")
    sums = list(accumulate(falling))

    def need(sequences: int) -> float:
        known = min(sequences, len(sums))
        tokens = sums[known - 1] + (sequences - known) * falling[0]
        return fixed_mib + per_token_mib * tokens

    return need


def engine_need(
    profile: ProfileFile, lengths_tokens: Sequence[int], layout: Layout
) -> Callable[[int], float]:
    """Bound what an engine needs for n sequences at once, from its model's shape (`engine_memory`).

    For serving tables, which measured times alone. The last block of each sequence counts whole.
    """
    from libra_plan.models.memory.shapes import BLOCK_TOKENS, engine_static
    from libra_plan.models.memory.states import kv_mib_per_token

    return cache_need(
        [-(-length // BLOCK_TOKENS) * BLOCK_TOKENS for length in lengths_tokens],
        fixed_mib=engine_static(profile, layout).high,
        per_token_mib=kv_mib_per_token(profile.model, profile.software, layout),
    )


def profile_need(
    fitted: FittedProfile, lengths_tokens: Sequence[int], layout: Layout, dp: int = 1
) -> Callable[[int], float]:
    """Bound what n sequences need by a profile's upper bound; infinite where the profile refuses.

    Training and scoring: a micro-batch of the n longest, each padded to the longest; in training beside
    the gradients of an earlier one. Decoding: the n longest at once, at their mean.
    """
    from libra_plan.models.memory.states import with_held_gradients
    from libra_plan.models.query import Query

    profile = fitted.profile
    falling = sorted(lengths_tokens, reverse=True)
    padded = profile.phase in ("train", "score")

    def need(sequences: int) -> float:
        longest = falling[:sequences]
        length = float(falling[0]) if padded else sum(longest) / len(longest)
        query = Query(float(sequences), length, layout=layout, dp=dp)
        try:
            peak = fitted.memory_mib(query)
        except RefusedError:
            return math.inf
        if profile.phase == "train":
            peak = with_held_gradients(profile, layout, dp, _ACCUMULATED, peak)
        return peak.high + (fitted.outside_allocator_mib or 0.0)

    return need
