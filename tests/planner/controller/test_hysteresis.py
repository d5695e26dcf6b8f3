"""Thresholds: the policy file with its defaults, looks in a row, caps, and the time a change has to pay."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from loops import scaling, world

from libra_plan.errors import InputError
from libra_plan.planner.controller.hysteresis import (
    CapPolicy,
    ReplanPolicy,
    RulePolicy,
    StayPolicy,
    count_looks,
    expected_stay_s,
    looks_needed,
    over_caps,
    read_policy,
)
from libra_plan.planner.controller.state import Clock, LoopState, Move, Pending, Stays, TaskClock

ROOT = Path(__file__).parents[3]
STAY = StayPolicy()


def test_the_reference_shows_the_defaults(tmp_path: Path) -> None:
    """docs/replan.md lists every key with its default: a reference that lies is worse than none."""
    page = ROOT / "docs" / "replan.md"
    if not page.exists():
        pytest.skip("the docs are not part of a wheel's tests")
    block = re.search(r"```yaml\n(schema_version.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    path = tmp_path / "policy.yaml"
    path.write_text(block[1], encoding="utf-8")
    assert read_policy(path) == ReplanPolicy()
    told = yaml.safe_load(block[1])
    for name in ReplanPolicy.__struct_fields__:
        part = getattr(ReplanPolicy(), name)
        fields = getattr(part, "__struct_fields__", None)
        assert name in told
        assert fields is None or set(told[name]) == set(fields)


def test_the_example_policy_is_read() -> None:
    """What is copied first must work."""
    path = ROOT / "examples" / "replan" / "policy.yaml"
    if not path.exists():
        pytest.skip("the examples are not part of a wheel's tests")
    assert read_policy(path).rule.looks_up == 4


def test_an_unknown_schema_version_is_refused(tmp_path: Path) -> None:
    """A093: a policy of another version is not read as if it were of this one."""
    path = tmp_path / "policy.yaml"
    path.write_text("schema_version: 2\n")
    with pytest.raises(InputError, match="schema_version"):
        read_policy(path)


def test_the_cron_job_is_one_that_kubernetes_takes() -> None:
    """Checked against the published schema of the API."""
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    path = ROOT / "examples" / "replan" / "cronjob.yaml"
    if not path.exists():
        pytest.skip("the examples are not part of a wheel's tests")
    validate.validate(yaml.safe_load(path.read_text(encoding="utf-8")), "1.30", strict=True)


def lived(loop_s: float, placed_s: float | None, stays: Stays = Stays()) -> LoopState:  # noqa: B008
    return LoopState(clock=Clock(loop_s), clocks=(TaskClock("a", placed_s),), stays=stays)


def test_without_history_the_prior_counts() -> None:
    """A first look reckons with the policy's own stay."""
    assert expected_stay_s(LoopState(), [], STAY) == STAY.prior_s


def test_stays_that_go_on_count() -> None:
    """A placement that has lasted a day is no sign of an hour: censored stays lengthen the horizon."""
    assert expected_stay_s(lived(86_400.0, 0.0), ["a"], STAY) > 2 * STAY.prior_s


def test_short_stays_shorten_it_to_the_limit() -> None:
    """Where everything moves every minute, nothing dear may move at all."""
    assert expected_stay_s(lived(10.0, None, Stays(100, 6000.0)), ["a"], STAY) == STAY.least_s


def test_it_never_passes_its_limit() -> None:
    """A week without change is no promise of another."""
    assert expected_stay_s(lived(1e6, 0.0), ["a"], STAY) == STAY.most_s


def test_what_ran_before_the_loop_counts_from_its_beginning() -> None:
    """Nobody saw it placed, but it has stayed as long as the loop has looked."""
    before, since = lived(7200.0, None), lived(7200.0, 0.0)
    assert expected_stay_s(before, ["a"], STAY) == expected_stay_s(since, ["a"], STAY)


def test_the_expected_stay_is_the_mean_of_stays_with_the_prior() -> None:
    """Two figures of it: 3 stays of an hour by the policy, 2 of 30 minutes seen, one of 10 that goes on."""
    state = lived(600.0, 0.0, Stays(2, 3600.0))
    assert expected_stay_s(state, ["a"], STAY) == round((3 * 3600 + 3600 + 600) / 5, -2)


def test_looks_are_counted_in_one_direction() -> None:
    """The same wish counts on, another begins at one, and what nobody asks for any more is forgotten."""
    before = (Pending("a", "grow", 2), Pending("b", "grow", 5), Pending("c", "pause", 1))
    assert count_looks(before, [("b", "shrink"), ("a", "grow")]) == (
        Pending("a", "grow", 3),
        Pending("b", "shrink", 1),
    )


def test_what_takes_gpus_away_needs_more_looks() -> None:
    """A task that is shrunk or paused for others loses more than one that grows."""
    rule = RulePolicy(looks_up=2, looks_down=3)
    needed = {action: looks_needed(action, rule) for action in ("grow", "move", "start", "shrink", "pause")}
    assert needed == {"grow": 2, "move": 2, "start": 2, "shrink": 3, "pause": 3}


def moves(*changes: tuple[str, str, int, int]) -> list[Move]:
    return [Move(task, action, before, after, 0.0, 0.0, 0.0, 0.0) for task, action, before, after in changes]


def test_caps_limit_disturbed_tasks_and_moved_gpus() -> None:
    """Starts disturb nobody, what is broken does not count, and two tasks may always exchange GPUs."""
    problem = world(8, [scaling("a", 1.0, 1.0, 1)])
    none, caps = frozenset[str](), CapPolicy(disturbed_tasks=3, moved_gpus_share=0.25)
    exchange = moves(("a", "grow", 1, 7), ("b", "shrink", 7, 1))
    assert over_caps(problem, exchange, caps, none) is None
    three = [*exchange, *moves(("c", "move", 2, 2))]
    assert over_caps(problem, three, caps, none) == "8 GPUs would be moved, allowed 2"
    assert over_caps(problem, three, caps, frozenset({"c"})) is None
    four = [*moves(("a", "pause", 1, 0), ("b", "pause", 1, 0), ("c", "pause", 1, 0), ("d", "pause", 1, 0))]
    assert over_caps(problem, four, caps, none) == "4 tasks would be disturbed, allowed 3"
    starts = moves(*((f"t{n}", "start", 0, 1) for n in range(9)))
    assert over_caps(problem, starts, caps, none) is None
