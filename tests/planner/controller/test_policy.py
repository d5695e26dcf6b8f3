"""The policy file: its reference shows the defaults, and the examples can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from libra_plan.errors import InputError
from libra_plan.planner.controller.policy import ReplanPolicy, read_policy

ROOT = Path(__file__).parents[3]


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


def test_the_example_observations_are_read(tmp_path: Path) -> None:
    """The file of observations in docs/replan.md is one that a look takes."""
    from libra_plan.cli.replan_inputs import _told

    page = ROOT / "docs" / "replan.md"
    if not page.exists():
        pytest.skip("the docs are not part of a wheel's tests")
    block = re.search(r"```yaml\n(until_s.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    path = tmp_path / "observations.yaml"
    path.write_text(block[1], encoding="utf-8")
    window = _told(path)
    assert window is not None
    assert window.events[0].detail == "XID 79"
    assert window.batch_steps[0].saves == pytest.approx(0.08)


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
