"""All finders together: on clean runs, on noise, on nothing, and in order."""

from __future__ import annotations

import random
from itertools import chain

import pytest
from doctor_cases import TOTAL_MIB, card, codes, computer, evidence_of, look, placed, play, work
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.planner.doctor import FINDERS, Evidence, Level, Need, Thresholds, judge
from libra_plan.planner.doctor.tracks import MovedTask

SPLIT = placed(actor=[0, 1], rollout=[2, 3])


def steps(at_s):
    """Train and roll out, with a short tail and a weight sync each minute."""
    tail = at_s % 60 < 5
    return [
        card(
            index,
            utilization_percent=3.0 if tail and index == 2 else 93.0,
            nvlink_tx_bytes_per_s=1e11 if index < 2 else 0.0,
            memory_used_mib=(0.7 + 0.2 * (at_s % 60 < 30)) * TOTAL_MIB,
        )
        for index in range(4)
    ]


def counts(seconds):
    """Count roles that wait a little, with a buffer that goes up and down."""
    return chain(
        work("actor", seconds, waiting_s=0.8),
        work(
            "rollout",
            seconds,
            lambda at_s: {"queues": {"experience": at_s % 90, "reward": at_s % 70}},
            waiting_s=0.5,
        ),
        work("reward", seconds, waiting_s=6.0),
    )


def test_a_clean_pipeline_gives_no_finding_and_everything_was_looked_for():
    """Whoever is told of faults that are none stops reading."""
    found = look(
        play(3600, steps), counts(3600), placement=SPLIT, moves=[MovedTask("t", 1.7e9, "move", 4, 4, 20.0)]
    )
    assert codes(found) == []
    assert found.unseen == ()
    assert found.worst is None


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    level=st.floats(30.0, 90.0),
    spread=st.floats(0.0, 20.0),
    memory=st.floats(0.55, 0.9),
    wobble=st.floats(0.0, 0.08),
)
def test_stationary_noise_gives_no_finding(seed, level, spread, memory, wobble):
    """Whatever the level and the spread: what stays what it is holds nothing back (A030)."""
    rng = random.Random(seed)

    def noisy(at_s):
        return [
            card(
                index,
                utilization_percent=min(max(rng.gauss(level, spread), 6.0), 100.0),
                memory_used_mib=(memory + rng.uniform(0, wobble)) * TOTAL_MIB,
                nvlink_rx_bytes_per_s=rng.uniform(0, 1e10),
                power_w=rng.uniform(100, 700),
            )
            for index in range(4)
        ]

    def host(at_s):
        free = rng.uniform(2e5, 6e5)
        return computer(
            cpu_percent=rng.uniform(5, 85),
            memory_free_mib=free,
            memory_used_mib=1e6 - free,
            network_rx_bytes_per_s=rng.uniform(0, 9e8),
        )

    def waits(at_s):
        return {
            "waiting_s": rng.uniform(0, 3),
            "queues": {"experience": rng.randrange(40), "env": rng.randrange(9)},
        }

    windows = chain(work("actor", 2400, waits), work("rollout", 2400, waits))
    found = look(play(2400, noisy, host=host, every_s=10.0), windows, placement=SPLIT, moves=[])
    assert codes(found) == []


def unknown(at_s):
    """Return GPUs of which nothing can be read."""
    return [
        card(0, **dict.fromkeys(("utilization_percent", "memory_total_mib", "memory_used_mib", "power_w")))
    ]


@pytest.mark.parametrize(
    "host", [None, computer(cpu_percent=None, memory_free_mib=None)], ids=["no host", "unknown host"]
)
def test_unknown_readings_never_make_a_finding(host):
    """Null is not idle, not free and not full; what could not be looked for is said."""
    found = look(play(3600, unknown, host=lambda at_s: host), counts(3600), placement=SPLIT)
    assert codes(found) == []
    assert {"gpus-idle", "hang", "memory-ahead", "host-cpu", "sync-traffic"} <= {
        each.code for each in found.unseen
    }


@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_recordings_without_length_give_nothing_and_divide_by_nothing(seconds):
    """A monitor that was started and stopped has one sample."""
    idle = play(seconds, lambda at_s: [card(index, utilization_percent=0.0) for index in range(2)])
    found = look(idle, work("actor", seconds, waiting_s=9.0), placement=SPLIT, moves=[])
    assert codes(found) == []


def test_a_recording_that_is_too_short_is_no_clean_bill():
    """Half a minute of a monitor says nothing of an hour's run."""
    found = look(play(30, steps), counts(30), placement=SPLIT, moves=[])
    assert codes(found) == []
    assert [each.code for each in found.unseen] == [finder.code for finder in FINDERS]
    assert "300 s of recording at least" in found.unseen[-1].lacks[0]


def test_no_recording_at_all_gives_nothing():
    """Then nothing was looked for either."""
    found = judge(Evidence())
    assert found.findings == ()
    assert len(found.unseen) == len(FINDERS)


def test_findings_come_in_the_order_in_which_an_engineer_looks():
    """A hang before anything else, then who waits for whom, then where the time goes."""
    idle = play(
        2400, lambda at_s: [card(index, utilization_percent=0.0 if index else 95.0) for index in range(4)]
    )
    windows = chain(work("actor", 1200, waiting_s=5.0), work("rollout", 1200, waiting_s=0.0))
    found = look(idle, windows, placement=placed(rollout=[0], actor=[1, 2, 3]))
    assert codes(found) == ["hang", "rollout-slow", "gpus-idle"]
    assert found.worst is Level.CRITICAL


def test_every_finder_has_a_code_of_its_own_and_says_what_it_needs():
    """Scripts go by codes."""
    named = [finder.code for finder in FINDERS]
    assert len(set(named)) == len(named) == 13
    assert all(finder.needs and set(finder.needs) <= set(Need) for finder in FINDERS)


def test_thresholds_are_kept():
    """A user with other steps has other limits."""
    windows = list(chain(work("actor", 1200, waiting_s=1.5), work("rollout", 1200, waiting_s=0.0)))
    assert codes(look([], windows)) == []
    strict = Thresholds(wait_share=0.1)
    assert codes(judge(evidence_of([], windows), strict)) == ["rollout-slow"]
