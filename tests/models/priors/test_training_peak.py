"""Training memory carried over between models, by the bytes of each precision."""

import msgspec
import numpy as np
import pytest

from libra_plan.models.costs.base import places_of
from libra_plan.models.curves.curve import CurveSample
from libra_plan.models.memory.states import state_mib
from libra_plan.models.parallelism import Layout
from libra_plan.models.priors.training_peak import TrainingPeak, carry_training_peak
from libra_plan.profiles.catalog import load_profile, shipped_folder

FILES = {
    size: load_profile(shipped_folder() / f"h200-qwen2.5-{size}-train").file
    for size in ("0.5b", "1.5b", "7b")
}
TOKENS = [512, 2048, 8192, 16384, 65536, 262144]


def _samples(peak: TrainingPeak) -> list[CurveSample]:
    values = peak.predict(places_of([(1.0, float(each), 1.0) for each in TOKENS]))
    return [
        CurveSample(1.0, float(t), 1.0, v, v, v, ()) for t, v in zip(TOKENS, values.tolist(), strict=True)
    ]


def _of(peak: TrainingPeak, tokens: float) -> float:
    return float(peak.predict(places_of([(1.0, tokens, 1.0)]))[0])


def test_what_the_law_made_is_found_again():
    """From peaks that follow the law the fit predicts the third model as the law has it."""
    known = [FILES["0.5b"], FILES["1.5b"]]
    seen = carry_training_peak(FILES["7b"], [(file, _real(file)) for file in known])
    made = [(file, _samples(carry_training_peak(file, [(f, _real(f)) for f in known]))) for file in known]
    again = carry_training_peak(FILES["7b"], made)
    for tokens in TOKENS:
        assert _of(again, tokens) == pytest.approx(_of(seen, tokens), rel=0.02)


def _real(file):
    from libra_plan.models.curves.layouts import memory_samples, rows_by_layout

    profile = load_profile(shipped_folder() / file.id)
    (rows,) = rows_by_layout(profile.file, profile.points, ())
    return memory_samples(rows.base)[0]


def test_precision_moves_exactly_the_states_where_they_peak():
    """Asked in another precision the same model differs by the bytes of its states, not by a guess."""
    donors = [(FILES[size], _real(FILES[size])) for size in ("0.5b", "1.5b")]
    pure = FILES["7b"]
    master = msgspec.structs.replace(
        pure, software=msgspec.structs.replace(pure.software, precision="fp32-master/bf16")
    )
    lines = {file.software.precision: carry_training_peak(file, donors) for file in (pure, master)}
    states = {
        file.software.precision: state_mib(file.model, file.software, Layout(), 1) for file in (pure, master)
    }
    shift = lines["fp32-master/bf16"].optimizer_mib - lines["bf16"].optimizer_mib
    table = 4 * pure.model.vocab * pure.model.hidden / 2**20
    assert shift == pytest.approx(states["fp32-master/bf16"] - states["bf16"] + table)


def test_the_largest_moment_counts_and_never_falls_with_tokens():
    """Moments follow one another: the peak is their maximum, and more tokens never need less."""
    peak = carry_training_peak(FILES["7b"], [(FILES[size], _real(FILES[size])) for size in ("0.5b", "1.5b")])
    values = peak.predict(places_of([(1.0, float(2**power), 1.0) for power in range(20)]))
    assert (np.diff(values) >= 0).all()
    assert values[0] == max(peak.optimizer_mib, peak.backward_mib + peak.backward_per_token_mib)


def test_a_fused_loss_keeps_no_logits():
    """A flag of the asked stack changes the moment of the logits, as it does when measured."""
    file = FILES["0.5b"]
    flags = {**file.software.flags, "fused_loss": True}
    fused = msgspec.structs.replace(file, software=msgspec.structs.replace(file.software, flags=flags))
    donors = [(FILES[size], _real(FILES[size])) for size in ("1.5b", "7b")]
    plain, without = carry_training_peak(file, donors), carry_training_peak(fused, donors)
    assert without.per_chunk_token_mib < plain.per_chunk_token_mib / 20
    assert _of(without, 16384) < _of(plain, 16384)
