"""Training and scoring stages against an affine law whose price is known."""

import numpy as np
import pytest
from affine_profile import AffineProfile, profile_file

from libra_plan.errors import RefusedError
from libra_plan.models.fit import fit_profile
from libra_plan.models.lengths import LengthSample
from libra_plan.models.memory.states import with_held_gradients
from libra_plan.models.parallelism import Layout
from libra_plan.models.pricing.passes import prefill_s_per_token, scoring_cost, training_cost
from libra_plan.profiles.catalog import load_profile, shipped_folder


def sample(lengths):
    return LengthSample(np.sort(np.array(lengths)))


def trainer(**fields):
    return AffineProfile(profile_file("train"), fixed_s=0.1, per_sequence_s=1e-4, per_token_s=1e-9, **fields)


def test_packed_sequences_cost_their_tokens_and_squares():
    """Seconds of a step are k·fixed + a·ΣS + c·ΣS², whatever the packing."""
    lengths = [1000, 3000, 2000, 4000]
    cost = training_cost(trainer(), sample(lengths), 5000, 1)
    squares = sum(length**2 for length in lengths)
    assert cost.time_s.value == pytest.approx(2 * 0.1 + 1e-4 * 10_000 + 1e-9 * squares)
    assert cost.notes == ("2 micro-batches per replica",)


def test_effective_length_is_the_ratio_of_squares():
    """The profile is asked at N/S sequences of S = ΣS²/ΣS, not at the mean length."""
    profile = trainer()
    training_cost(profile, sample([1000, 3000]), 4000, 1)
    assert profile.asked[-1].seq_len_tokens == pytest.approx(2500)
    assert profile.asked[-1].batch_sequences == pytest.approx(1.6)


def test_only_the_last_micro_batch_reduces_gradients():
    """With accumulation ranks meet once a step; the link between them goes along with the question."""
    profile = trainer()
    training_cost(profile, sample([1000] * 16), 2000, 2, link_gib_per_s=46.0)
    assert [(query.dp, query.link_gib_per_s) for query in profile.asked] == [(2, 46.0), (1, None)]


def test_fully_sharded_states_meet_in_every_micro_batch():
    """ZeRO-3 gathers weights in each forward, so no micro-batch is priced alone."""
    profile = AffineProfile(profile_file("train", zero_stage=3))
    training_cost(profile, sample([1000] * 16), 2000, 2)
    assert [query.dp for query in profile.asked] == [2]


def test_memory_is_that_of_a_full_micro_batch():
    """The bound is asked at the budget, or at all tokens when they are fewer."""
    profile = trainer()
    full = training_cost(profile, sample([1000] * 4), 4000, 1).memory_mib
    assert full.value == pytest.approx(16_000 + 0.1 * 4000)
    held = training_cost(profile, sample([1000] * 16), 4000, 1).memory_mib
    assert held == with_held_gradients(profile.profile, Layout(), 1, 4, full)
    few = training_cost(profile, sample([1000]), 4000, 1).memory_mib
    assert few.value == pytest.approx(16_000 + 0.1 * 1000)


def test_more_replicas_are_faster_without_communication():
    """With enough sequences, doubling replicas nearly halves a stage."""
    times = [scoring_cost(trainer(), sample([500] * 64), 4000, count).time_s.value for count in (1, 2, 4, 8)]
    assert times == pytest.approx([times[0] / count for count in (1, 2, 4, 8)])


def test_replicas_without_a_micro_batch_are_refused():
    """A mini-batch of size 0 is refused with the largest count that works (A086)."""
    with pytest.raises(RefusedError, match="at most 4 replicas"):
        training_cost(trainer(), sample([500] * 4), 4000, 8)


def test_layout_reaches_the_profile():
    """A tp2 option is priced from tp2 measurements and refused without them."""
    with pytest.raises(RefusedError):
        scoring_cost(trainer(), sample([500] * 4), 4000, 1, layout=Layout(tp=2))
    profile = trainer(layouts=(Layout(tp=2),))
    scoring_cost(profile, sample([500] * 4), 4000, 1, layout=Layout(tp=2))
    assert profile.asked[0].layout.tp == 2


def test_lengths_below_the_shortest_measured_are_bounded_from_above():
    """100-token sequences are asked at the shortest measured length instead of outside the domain."""
    profile = trainer(shortest=512.0)
    cost = scoring_cost(profile, sample([100] * 8), 4000, 1, shortest_tokens=512)
    assert profile.asked[0].seq_len_tokens == 512
    assert cost.time_s.value >= 0.1 + 1e-4 * 800


def test_prefill_is_priced_per_token_of_a_full_batch():
    """An engine prefills many prompts at once, so the fixed cost is shared by the batch."""
    rate = prefill_s_per_token(trainer(), sample([1000] * 4), 16_000)
    assert rate.value == pytest.approx((0.1 + 16_000 * (1e-4 + 1e-9 * 1000)) / 16_000)


@pytest.mark.parametrize("known", ["h200", "h200b"])
def test_whole_steps_bound_accumulated_ones(known):
    """Two micro-batches measured with one update stay within the bounds drawn from steps with one each."""
    times, peaks = [], []
    for size in ("0.5b", "1.5b", "7b"):
        whole = load_profile(shipped_folder() / f"{known}-qwen2.5-{size}-train")
        model = fit_profile(whole.file, whole.points)
        for point in load_profile(shipped_folder() / f"h200c-qwen2.5-{size}-train-accumulated").points:
            batch, length = int(point.batch_sequences), int(point.seq_len_tokens)
            try:
                cost = training_cost(model, sample([length] * (2 * batch)), batch * length, 1)
            except RefusedError:
                continue
            assert cost.micro_batches == 2
            times.append(cost.time_s.low <= 2 * point.time_s <= cost.time_s.high)
            peaks.append(cost.memory_mib.high >= point.peak_reserved_mib)
    assert sum(times) >= 0.9 * len(times)
    assert all(peaks)
