"""Set aside measured rows that cannot be true; even published tables hold such rows.

A row is set aside when a number in it cannot have been measured, when its memory figures contradict each
other or leave no room for the weights, when tokens, time and rate do not balance, when it is faster than
its GPU can be (weights read from memory, arithmetic), or when a larger job is reported more than 20 %
faster than a smaller one, beyond the spread of its repeats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from libra_plan.profiles.hardware import bytes_per_weight, gpu_limits
from libra_plan.profiles.points import PointRow
from libra_plan.profiles.schema import Point, ProfileFile
from libra_plan.profiles.units import MIB

__all__ = ["BALANCE", "SetAside", "floor_s", "immeasurable", "sift"]

BALANCE = (0.95, 1.25)  # tokens/s · seconds over tokens: rounding below, padding counted above
LEAST_OF_WEIGHTS = 0.9  # parameters are rounded on model cards, and some tables lie on the host
MEASURABLE = (1e-9, 1e15)
"""What seconds, tokens, rates and MiB may be; far beyond, their products leave the floating-point range."""
FALL = 0.8
FALL_ACROSS_OUTPUTS = 0.45
"""Serving rows of different output lengths: short ones meet more prefill than their ratio says."""


@dataclass(frozen=True)
class SetAside:
    """A row kept out of the points, with the reason."""

    row: PointRow
    reason: str


def sift(rows: Sequence[PointRow], profile: ProfileFile) -> tuple[tuple[PointRow, ...], tuple[SetAside, ...]]:
    """Split rows into those that can be true and those set aside, both in file order."""
    aside: dict[int, SetAside] = {}
    for index, row in enumerate(rows):
        reason = (
            immeasurable(row.point)
            or _memory(row.point, profile.hardware.memory_mib)
            or _below_weights(row.point, profile)
            or _balance(row.point, profile)
            or _too_fast(row.point, profile)
        )
        if reason:
            aside[index] = SetAside(row, reason)
    sound = [index for index in range(len(rows)) if index not in aside and rows[index].point.status == "ok"]
    for index, reason in _falls(rows, sound).items():
        aside[index] = SetAside(rows[index], reason)
    kept = tuple(row for index, row in enumerate(rows) if index not in aside)
    return kept, tuple(aside[index] for index in sorted(aside))


def immeasurable(point: Point) -> str | None:
    """Return why a number of a row cannot have been measured, or None."""
    least, largest = MEASURABLE
    for name in point.__struct_fields__:
        value = getattr(point, name)
        if isinstance(value, int | float) and not least <= value <= largest:
            return f"{name} {_shown(value)} is no measurement; allowed {least:g} to {largest:g}"
    return None


def _shown(value: float) -> str:
    text = str(value)
    return text if len(text) < 30 else f"of {len(text)} digits"  # a file may hold any whole number


def _memory(point: Point, memory_mib: float) -> str | None:
    allocated, reserved = point.peak_allocated_mib, point.peak_reserved_mib
    if allocated is not None and reserved is not None and allocated > reserved:
        return f"peak_allocated_mib {allocated:g} is above peak_reserved_mib {reserved:g}"
    for name in ("peak_allocated_mib", "peak_reserved_mib", "device_used_mib"):
        value = getattr(point, name)
        if value is not None and value > memory_mib:
            return f"{name} {value:g} is above the memory of the GPU, {memory_mib:g} MiB"
    return None


def _below_weights(point: Point, profile: ProfileFile) -> str | None:
    """Compare peaks with the weights, split as far as possible, which shows a wrong unit.

    Weights that ranks share out (ZeRO-3) or that lie on the host need not be there.
    """
    if profile.software.zero_stage == 3 or "parameters" in str(profile.software.flags.get("offload", "")):
        return None
    split = point.tp * point.pp * (point.ep if profile.model.experts else 1)
    weights_mib = bytes_per_weight(profile.software.precision) * profile.model.params / split / MIB
    for name in ("peak_allocated_mib", "peak_reserved_mib", "device_used_mib"):
        value = getattr(point, name)
        if value is not None and value < LEAST_OF_WEIGHTS * weights_mib:
            return (
                f"{name} {value:g} is below the weights of {profile.model.id} in "
                f"{profile.software.precision}, {weights_mib:.0f} MiB a GPU: is it in another unit?"
            )
    return None


def _tokens_and_seconds(point: Point, profile: ProfileFile) -> tuple[float, float] | None:
    """Count the tokens of a row, all GPUs together, and the seconds they took."""
    if point.time_s is None:
        return None
    sequences = point.batch_sequences * point.dp
    if profile.phase == "decode":
        return sequences, point.time_s
    if profile.phase in ("score", "train"):
        return None if point.seq_len_tokens is None else (sequences * point.seq_len_tokens, point.time_s)
    if point.output_tokens is None or point.ttft_s is None:
        return None
    counted = {
        "output": point.output_tokens,
        "input": point.prompt_tokens or 0,
        "input+output": point.output_tokens + (point.prompt_tokens or 0),
    }[profile.method.tokens_counted]
    return sequences * counted, point.ttft_s + (point.output_tokens - 1) * point.time_s


def _balance(point: Point, profile: ProfileFile) -> str | None:
    work = _tokens_and_seconds(point, profile)
    if work is None or point.tokens_per_s is None:
        return None
    tokens, seconds = work
    gpus = point.tp * point.pp * point.cp * point.dp
    rate = point.tokens_per_s * (gpus if profile.method.throughput_basis == "per_gpu" else 1)
    ratio = rate * seconds / tokens
    if BALANCE[0] <= ratio <= BALANCE[1]:
        return None
    return (
        f"tokens_per_s times seconds is {ratio:.3g} of the tokens of the row, "
        f"allowed {BALANCE[0]:g} to {BALANCE[1]:g}"
    )


def floor_s(point: Point, profile: ProfileFile) -> float | None:
    """Return the least seconds a row can take on its GPU class; None where limits are unknown.

    A token of a step needs the weights read once, split over tensor-parallel ranks (pipeline stages
    follow each other): bytes ÷ HBM bandwidth. A pass needs 2 operations per parameter and token,
    training 6. Embeddings are looked up rather than read, so they are left out.
    """
    gpu = gpu_limits(profile.hardware.gpu_class)
    model = profile.model
    active = model.params if model.experts is None else model.active_params
    if gpu is None or active is None:
        return None
    read = max(active - model.vocab * model.hidden, 0)
    if profile.phase in ("decode", "serve"):
        return read * bytes_per_weight(profile.software.precision) / point.tp / gpu.bandwidth_bytes_per_s
    if point.seq_len_tokens is None:
        return None
    operations = (6.0 if profile.phase == "train" else 2.0) * read
    if profile.software.lora_rank is not None:
        operations = 4.0 * read  # frozen weights have no gradients of their own
    faster = 2.0 if bytes_per_weight(profile.software.precision) <= 1.0 else 1.0
    gpus = point.tp * point.pp * point.cp
    return operations * point.batch_sequences * point.seq_len_tokens / gpus / (gpu.bf16_per_s * faster)


def _too_fast(point: Point, profile: ProfileFile) -> str | None:
    if point.status != "ok" or point.time_s is None:
        return None
    floor = floor_s(point, profile)
    if floor is None or point.time_s >= floor:
        return None
    return (
        f"time_s {point.time_s:.4g} is below the floor of {profile.hardware.gpu_class}, {floor:.4g} s for "
        f"{profile.model.id} in {profile.software.precision} at tp {point.tp}: is the layout, precision or "
        "model another, or are several tokens made per pass?"
    )


@dataclass(frozen=True)
class _Size:
    """The claims of a row: its place in the file, sizes that only ever add work, bounds on its time."""

    index: int
    sizes: tuple[float, ...]
    output: int
    low_s: float
    high_s: float


def _groups(rows: Sequence[PointRow], sound: Sequence[int]) -> list[list[_Size]]:
    """Gather rows whose times must grow with their sizes: one layout.

    Serving time per token may truly fall as the output grows, since prefill weighs less: prompt
    tokens per output token are a size of their own.
    """
    groups: dict[tuple[int, ...], list[_Size]] = {}
    for index in sound:
        p = rows[index].point
        if p.time_s is None:
            continue
        prompt, output = p.prompt_tokens or 0, p.output_tokens or 0
        sizes = (p.batch_sequences, p.seq_len_tokens or 0, prompt, output, prompt / max(output, 1))
        item = _Size(index, sizes, output, p.time_low_s or p.time_s, p.time_high_s or p.time_s)
        groups.setdefault((p.tp, p.pp, p.cp, p.ep, p.dp), []).append(item)
    return list(groups.values())


def _conflicts(group: Sequence[_Size]) -> list[tuple[int, int]]:
    """List (smaller job, larger job) where the larger is too fast, the spreads considered."""
    return [
        (small.index, large.index)
        for small in group
        for large in group
        if large.high_s < (FALL if small.output == large.output else FALL_ACROSS_OUTPUTS) * small.low_s
        and all(x <= y for x, y in zip(small.sizes, large.sizes, strict=True))
    ]


def _falls(rows: Sequence[PointRow], sound: Sequence[int]) -> dict[int, str]:
    """Choose the rows to set aside so that no fall is left: most conflicts first, a tie takes both.

    With two rows that contradict each other and nothing else to go by, either may be the wrong one.
    """
    conflicts = [pair for group in _groups(rows, sound) for pair in _conflicts(group)]
    aside: dict[int, str] = {}
    while conflicts:
        count = Counter(index for pair in conflicts for index in pair)
        most = max(count.values())
        worst = {index for index, number in count.items() if number == most}
        for smaller, larger in conflicts:
            for index in {smaller, larger} & worst:
                aside.setdefault(index, _fall_reason(rows[smaller], rows[larger]))
        conflicts = [pair for pair in conflicts if not worst & set(pair)]
    return aside


def _fall_reason(smaller: PointRow, larger: PointRow) -> str:
    return (
        f"time falls by more than {1 - FALL:.0%} as the job grows: {smaller.point.time_s:g} s on line "
        f"{smaller.line}, {larger.point.time_s:g} s on line {larger.line}"
    )
