"""A rollout priced: room for the cache, prefill, concurrency and coupling."""

import msgspec
from affine_profile import profile_file
from pricing_cases import H200, ROLLOUT, WORK, price_of, role_of, task_of

from libra_plan.planner.configurations import configurations_of
from libra_plan.planner.problem import CouplingKind
from libra_plan.profiles.schema import (
    CouplingSpec,
)


def test_the_luck_of_lengths_is_told_with_the_price():
    """A plan names what one step in twenty may take, above the price itself."""
    option = role_of(price_of(task_of())).options[7]
    (said,) = [note for note in option.notes if note.startswith("p95 of the step over resampled lengths: ")]
    high, median = (
        float(word.strip("(s")) for word in said.split() if word.strip("(s)").replace(".", "").isdigit()
    )
    assert high > median
    assert high > option.time_s.value


def test_a_role_that_does_not_fit_is_refused_with_the_figures():
    """Actor states above the card's memory leave no option, and the message gives both numbers (A021)."""
    priced = role_of(price_of(task_of(), fields={"static": 150_000.0}), "actor")
    assert priced.options == ()
    assert "MiB per GPU; allowed: 143156 MiB" in priced.refusals[0]


def test_rollout_without_room_for_the_cache_says_what_does_not_fit():
    """No KV room is refused without the advice to raise memory utilisation (A027)."""
    priced = role_of(price_of(task_of(), fields={"static": 142_000.0}))
    assert priced.options == ()
    assert "do not fit" in priced.refusals[0]
    assert "cannot help" in priced.refusals[0]


def test_rollout_memory_budget_leaves_what_others_hold_on_the_card():
    """The engine's budget is what is free beside context and driver, not total × utilisation (A020)."""
    for option in role_of(price_of(task_of(), fields={"mib_per_token": 5.0})).options:
        assert option.peak_mib <= 143_155.9
        assert option.asleep_mib == 800.0


def test_prefixes_are_prefilled_anew_unless_the_engine_keeps_them():
    """Each turn re-reads its prefix without prefix caching; with it only the prompt is read."""
    work = msgspec.structs.replace(WORK, turns=4)
    kept = [profile_file("decode", flags={"prefix_caching": True}), profile_file("score")]
    plain = [profile_file("decode"), profile_file("score")]
    times = [
        role_of(price_of(task_of(ROLLOUT, work_per_step=work), files=files)).options[0]
        for files in (plain, kept)
    ]
    assert times[0].time_s.value > times[1].time_s.value
    assert any("4 turns" in note for note in times[0].notes)


def test_async_rollout_is_priced_at_its_steady_rate():
    """With staleness the tail overlaps the next step, so the same role is faster than sync."""
    coupled = CouplingSpec(kind="async", staleness_steps=2)
    overlapped = price_of(task_of(coupling=coupled))
    assert overlapped.tasks[0].coupling.kind is CouplingKind.ASYNC
    alone = [option for option in role_of(overlapped).options if option.stream]
    for slow, fast in zip(role_of(price_of(task_of())).options, alone, strict=True):
        assert fast.time_s.value < slow.time_s.value


def test_async_rollout_batch_by_batch_drains_every_step():
    """One-step-off trainers wait for the longest of a batch: no plan may count on a stream there."""
    coupled = CouplingSpec(kind="async", staleness_steps=1, rollouts="batches")
    options = role_of(price_of(task_of(coupling=coupled))).options
    assert options == role_of(price_of(task_of())).options


def test_async_rollout_in_turns_with_others_drains_every_step():
    """Continuous generation cannot share its GPUs in turns, so such a pool pays the sync makespan."""
    problem = price_of(task_of(coupling=CouplingSpec(kind="async", staleness_steps=1)))
    drained = [option for option in role_of(problem).options if not option.stream]
    assert [o.time_s for o in drained] == [o.time_s for o in role_of(price_of(task_of())).options]
    for configuration in configurations_of(problem.tasks[0], H200).configurations:
        for pool in (pool for phase in configuration.phases for pool in phase.pools):
            if len(pool.choices) > 1 or len(configuration.phases) > 1:
                assert not any(choice.option.stream for choice in pool.choices)
    separate = configurations_of(problem.tasks[0], H200).configurations
    assert any(
        choice.option.stream for c in separate for f in c.phases for p in f.pools for choice in p.choices
    )


def test_concurrency_limit_is_kept_and_noted():
    """The note says that the user's limit, not memory, sets how many run at once."""
    role = msgspec.structs.replace(ROLLOUT, max_concurrency=4)
    limited = role_of(price_of(task_of(role))).options[0]
    free = role_of(price_of(task_of(ROLLOUT))).options[0]
    assert "concurrency 4 per replica: max_concurrency" in limited.notes
    assert limited.time_s.value > free.time_s.value
    assert limited.peak_mib < free.peak_mib


def test_missing_score_profile_is_noted_not_hidden():
    """Without a profile for prefill the time is decode only, and the option says so."""
    role = msgspec.structs.replace(ROLLOUT, profiles=("h200-sxm-decode",))
    without = role_of(price_of(task_of(role))).options[0]
    with_prefill = role_of(price_of(task_of(ROLLOUT))).options[0]
    assert any("prefill is not in the time" in note for note in without.notes)
    assert with_prefill.time_s.value > without.time_s.value
