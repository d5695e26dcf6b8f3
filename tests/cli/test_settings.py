"""Defaults from the settings file and the environment: who wins, and what is refused."""

from __future__ import annotations

import json

import pytest
from launch_cases import TEN

from libra_plan.planner.launchers.agents import agents_of
from libra_plan.planner.runtime.processes import MARK


@pytest.fixture
def policy(call, folder):
    """Solve and give the policy that was used."""

    def used(*words: str) -> str:
        ran = call(*words[:-1], "solve", folder, "--gpus", 3, "--format", "json", *words[-1:])
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["spec"]["certificate"]["policy"]

    return used


def test_a_flag_wins_over_the_environment_over_the_file(policy, tmp_path, monkeypatch):
    """The nearest word counts, as everywhere; otherwise a flag could do nothing without a trace."""
    (tmp_path / "libra-plan.yaml").write_text("solve: {policy: max-min}\n")
    assert policy("--seed=0") == "max-min"
    monkeypatch.setenv("LIBRA_PLAN_SOLVE_POLICY", "throughput")
    assert policy("--seed=0") == "throughput"
    assert policy("--policy=max-min") == "max-min"


def test_options_go_by_their_flags(call, folder, tmp_path, monkeypatch):
    """`--format` must be `format` in the file and _FORMAT in the environment, whatever the code calls it."""
    (tmp_path / "libra-plan.yaml").write_text("validate: {format: json}\nsolve: {time-limit: 5, gpus: 2}\n")
    assert json.loads(call("validate", folder).out)["sound"] is True
    monkeypatch.setenv("LIBRA_PLAN_SOLVE_FORMAT", "json")
    assert len(json.loads(call("solve", folder).out)["spec"]["nodes"][0]["gpus"]) == 2


def test_another_file_can_be_named(policy, tmp_path):
    """Teams keep several settings files."""
    (tmp_path / "other.yaml").write_text("solve: {policy: max-min}\n")
    assert policy("--config", str(tmp_path / "other.yaml"), "--seed=0") == "max-min"


def test_nested_verbs_have_settings(call, one_profile, tmp_path):
    """`profile check` is a verb of a verb, and its options are nested the same way."""
    (tmp_path / "libra-plan.yaml").write_text("profile: {check: {worst: 1, format: json}}\n")
    (checked,) = json.loads(call("profile", "check", one_profile).out)
    assert len(checked["worst"]) == 1


def test_an_empty_file_sets_nothing(call, folder, tmp_path):
    """A file of comments only is what people keep after trying things."""
    (tmp_path / "libra-plan.yaml").write_text("# solve: {policy: max-min}\n")
    assert call("validate", folder).code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slove: {policy: max-min}", ("libra-plan.yaml:1: slove", "did you mean `solve`?")),
        ("solve:\n  polcy: max-min", ("libra-plan.yaml:2: solve.polcy", "did you mean `policy`?")),
        ("solve: {policy: fast}", ("'fast'", "throughput", "(from libra-plan.yaml)")),
        ("solve: {policy: [max-min]}", ("solve.policy", "one value")),
        ("solve: {policy: null}", ("solve.policy", "got nothing")),
        ("solve: [policy]", ("libra-plan.yaml", "options")),
        ("- solve", ("libra-plan.yaml", "settings map verbs")),
        ("profile: {chekc: {}}", ("profile.chekc", "did you mean `check`?")),
        ("launch: {yes: true}", ("launch.yes", "command line")),
        ("solve: {policy: max-min", ("libra-plan.yaml",)),
        ("solve: {policy: max-min, policy: throughput}", ("libra-plan.yaml", "policy")),
    ],
)
def test_a_wrong_file_is_one_line(call, folder, tmp_path, text, said):
    """A misspelt setting that is silently left out costs hours; it must be told with its line."""
    (tmp_path / "libra-plan.yaml").write_text(text + "\n")
    ran = call("solve", folder, "--gpus", 2)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1, ran.err
    for part in said:
        assert part in ran.err


def test_a_wrong_variable_is_named(call, folder, monkeypatch):
    """Who reads `--policy` in a message but never typed it must learn where it came from."""
    monkeypatch.setenv("LIBRA_PLAN_SOLVE_POLICY", "fast")
    ran = call("solve", folder, "--gpus", 2)
    assert ran.code == 2
    assert "LIBRA_PLAN_SOLVE_POLICY" in ran.err


def test_nothing_from_outside_starts_processes(call, monkeypatch, folder):
    """`launch` is a dry run unless this very command says --yes."""
    monkeypatch.setenv("LIBRA_PLAN_LAUNCH_YES", "1")
    made = call("solve", folder, "--gpus", 2, "--out", "run")
    assert made.code == 0
    ran = call("launch", "run", "--node", "node0")
    assert ran.code == 0, ran.err
    assert "nothing was started" in ran.err


def test_a_misspelt_variable_is_told(call, folder, monkeypatch):
    """A variable that is quietly left out costs hours, as a setting does."""
    monkeypatch.setenv("LIBRA_PLAN_SOLVE_POLCY", "max-min")
    monkeypatch.setenv("LIBRA_PLAN_LAUNCH_YES", "1")
    monkeypatch.setenv("LIBRA_PLAN_CASHE", "x")
    monkeypatch.setenv("LIBRA_PLAN_SOLVE_SEED", "0")
    monkeypatch.setenv("LIBRA_PLAN_PROFILES", "")
    ran = call("validate", folder)
    assert ran.code == 0
    assert ran.err.splitlines() == [
        "warning: LIBRA_PLAN_CASHE is not read; did you mean LIBRA_PLAN_CACHE?",
        "warning: LIBRA_PLAN_LAUNCH_YES is not read: the option can only be given on the command line",
        "warning: LIBRA_PLAN_SOLVE_POLCY is not read; did you mean LIBRA_PLAN_SOLVE_POLICY?",
    ]


def test_what_roles_are_told_is_no_mistake(call, folder, monkeypatch):
    """The program may be run inside a role, whose environment is full of our names."""
    agents = [agent for case in TEN.values() for agent in agents_of(case())]
    for agent in agents:
        for name, value in agent.environment.items():
            if name.startswith("LIBRA_PLAN_"):
                monkeypatch.setenv(name, value)
    monkeypatch.setenv(MARK, "1")
    assert call("validate", folder).err == ""
