from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_files import profile_data

from libra_plan.profiles.physics import FALL, sift
from libra_plan.profiles.points import PointRow
from libra_plan.profiles.schema import Point, ProfileFile


def profile(phase: str = "score", **method: str) -> ProfileFile:
    data = profile_data(phase=phase)
    data["method"].update(method)
    return msgspec.convert(data, ProfileFile)


def rows(*points: dict[str, Any]) -> list[PointRow]:
    filled = [{"batch_sequences": 1, "seq_len_tokens": 512, "time_s": 1.0, **point} for point in points]
    return [PointRow(line, Point(**point)) for line, point in enumerate(filled, start=2)]


def aside(table: list[PointRow], of: ProfileFile | None = None) -> list[int]:
    kept, out = sift(table, of or profile())
    assert sorted([row.line for row in kept] + [item.row.line for item in out]) == [row.line for row in table]
    return [item.row.line for item in out]


@pytest.mark.parametrize(
    "memory",
    [
        {"peak_allocated_mib": 100.0, "peak_reserved_mib": 99.0},
        {"peak_reserved_mib": 143_156.0},
        {"device_used_mib": 200_000.0},
    ],
)
def test_memory_that_cannot_be_is_set_aside(memory: dict[str, float]) -> None:
    """Allocated ≤ reserved ≤ the card's memory, or the row was mixed up."""
    assert aside(rows(memory, {"batch_sequences": 2})) == [2]


def test_tokens_rate_and_time_must_balance() -> None:
    """A published table showed 7.7 times the tokens that rate and time allow."""
    assert aside(rows({"tokens_per_s": 512.0})) == []
    assert aside(rows({"tokens_per_s": 512.0 * 1.25})) == []
    assert aside(rows({"tokens_per_s": 512.0 / 7.7}, {"batch_sequences": 2})) == [2]
    assert aside(rows({"tokens_per_s": 512.0, "dp": 2})) == [2], "the total counts every rank's tokens"
    assert aside(rows({"tokens_per_s": 512.0, "dp": 2}), profile(throughput_basis="per_gpu")) == []


def test_a_decode_step_makes_one_token_a_sequence() -> None:
    """The context is not the work of a decode step."""
    assert aside(rows({"batch_sequences": 4, "tokens_per_s": 4.0}), profile("decode")) == []
    assert aside(rows({"batch_sequences": 4, "tokens_per_s": 2048.0}), profile("decode")) == [2]


def test_serving_counts_the_first_token_apart() -> None:
    """A request takes its TTFT and then one TPOT for each further token."""
    point = {
        "batch_sequences": 2,
        "seq_len_tokens": None,
        "prompt_tokens": 100,
        "output_tokens": 11,
        "ttft_s": 5.0,
        "time_s": 0.5,
    }
    serve = profile("serve", tokens_counted="output")
    assert aside(rows({**point, "tokens_per_s": 2.2}), serve) == []
    assert aside(rows({**point, "tokens_per_s": 22.2}), serve) == [2]
    both = profile("serve", tokens_counted="input+output")
    assert aside(rows({**point, "tokens_per_s": 22.2}), both) == []


# Whole-batch latency, seconds, by length and then batch 1, 16, 32, 64: Qwen2-7B, TensorRT-LLM, one
# H100, from argonne-lcf/LLM-Inference-Bench@4211f5d, Plots/All_results.csv (BSD-3-Clause), rounded.
PUBLISHED = {
    128: (0.913, 1.019, 1.105, 1.338),
    256: (1.826, 2.099, 2.325, 2.865),
    512: (3.771, 4.377, 5.000, 6.448),
    1024: (7.698, 9.550, 11.483, 15.796),
    2048: (0.083, 0.848, 1.696, 3.392),
}


def test_impossible_rows_of_a_published_table_are_found() -> None:
    """The four rows of length 2048 are faster than those of 512: they go, and no other."""
    table = rows(
        *(
            {"seq_len_tokens": length, "batch_sequences": batch, "time_s": seconds}
            for length, times in PUBLISHED.items()
            for batch, seconds in zip((1, 16, 32, 64), times, strict=True)
        )
    )
    assert aside(table) == [18, 19, 20, 21]


def test_of_two_rows_that_contradict_each_other_neither_is_trusted() -> None:
    """With nothing else to go by either may be wrong."""
    table = rows(
        {"time_s": 1.0}, {"seq_len_tokens": 1024, "time_s": 0.7}, {"seq_len_tokens": 2048, "time_s": 0.9}
    )
    assert aside(table) == [2, 3]


def test_a_fall_within_the_spread_of_the_repeats_is_noise() -> None:
    """Times bound by launches jump; their own bounds say by how much."""
    wide = rows({"time_low_s": 0.6, "time_high_s": 1.4}, {"seq_len_tokens": 1024, "time_s": 0.7})
    assert aside(wide) == []


def test_only_comparable_rows_are_compared() -> None:
    """More GPUs may be faster, and a larger batch of shorter sequences may be too."""
    assert aside(rows({}, {"seq_len_tokens": 1024, "time_s": 0.1, "dp": 2})) == []
    assert aside(rows({}, {"batch_sequences": 4, "seq_len_tokens": 64, "time_s": 0.1})) == []
    assert aside(rows({}, {"seq_len_tokens": 1024, "time_s": None, "status": "oom"})) == []


def test_time_per_token_may_fall_as_outputs_grow() -> None:
    """Prefill is spread over more tokens, so this fall is no error."""
    base = {"seq_len_tokens": None, "prompt_tokens": 4096}
    table = rows(
        {**base, "output_tokens": 16, "time_s": 0.1}, {**base, "output_tokens": 4096, "time_s": 0.02}
    )
    assert aside(table, profile("serve")) == []


@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(1, 6), st.floats(0.01, 10)),
        max_size=12,
        unique_by=lambda t: t[:2],
    )
)
def test_no_fall_is_left_and_sound_tables_are_untouched(cells: list[tuple[int, int, float]]) -> None:
    """What remains is monotone within the tolerance; a table without falls keeps every row."""
    table = rows(*({"batch_sequences": b, "seq_len_tokens": s, "time_s": t} for b, s, t in cells))

    def falls(kept: list[PointRow]) -> int:
        return sum(
            b.point.time_s < FALL * a.point.time_s  # type: ignore[operator]
            for a in kept
            for b in kept
            if a.point.batch_sequences <= b.point.batch_sequences
            and a.point.seq_len_tokens <= b.point.seq_len_tokens  # type: ignore[operator]
        )

    kept, out = sift(table, profile())
    assert falls(list(kept)) == 0
    assert bool(out) == bool(falls(table))


def profile_7b(phase: str = "score", **software: object) -> ProfileFile:
    data = profile_data(phase=phase)
    data["model"] |= {"params": 7_615_616_512}
    data["software"] |= software
    return msgspec.convert(data, ProfileFile)


def test_memory_without_room_for_the_weights_is_set_aside() -> None:
    """Memory is the hard limit: a table in GiB read as MiB would let everything fit."""
    table = rows({"peak_reserved_mib": 19.0}, {"batch_sequences": 2, "peak_reserved_mib": 14_700.0})
    _, out = sift(table, profile_7b())
    assert [item.row.line for item in out] == [2]
    assert "below the weights" in out[0].reason


@pytest.mark.parametrize(
    ("point", "software"),
    [({"tp": 8}, {}), ({}, {"zero_stage": 3}), ({}, {"flags": {"offload": "parameters"}})],
)
def test_weights_that_are_elsewhere_need_no_room(point: dict[str, int], software: dict[str, object]) -> None:
    """Split, sharded and offloaded weights are measured so."""
    assert aside(rows({"peak_reserved_mib": 2_000.0, **point}), profile_7b("train", **software)) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "odd",
    [{"time_s": 1e-308}, {"time_s": 1e308}, {"tokens_per_s": 1e300}, {"batch_sequences": 10**400}],
)  # fmt: skip
def test_numbers_that_nobody_measures_are_set_aside(odd: dict[str, float]) -> None:
    """Their products left the floating-point range: one such row ended an import in a traceback."""
    table = rows({**odd}, {}, {"batch_sequences": 2, "time_s": 2.0})
    assert aside(table) == [2]
    assert "is no measurement" in sift(table, profile())[1][0].reason
