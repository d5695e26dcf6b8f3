"""A plan as a table of pandas."""

from __future__ import annotations

import sys

import pytest
from shipped_plan import shipped_plan

from libra_plan.errors import InputError


def test_one_row_a_role_with_the_figures_of_the_plan():
    """Sums over the table must come out as the plan's."""
    plan = shipped_plan()
    frame = plan.to_frame()
    on_gpus = frame[frame["gpus"] > 0]
    assert list(on_gpus["role"]) == [role.role for running in plan.running for role in running.roles]
    assert on_gpus["stage_s"].notna().all()
    assert frame.groupby("task")["weight"].first().to_dict() == {
        running.task: plan.known_problem.task_of[running.task].weight for running in plan.running
    }
    worth = frame.drop_duplicates("task").eval("weight * fair_share").sum()
    assert worth == pytest.approx(plan.certificate.objective)
    assert (frame["step_low_s"] <= frame["step_s"]).all()


def test_roles_on_cpus_have_a_row_and_no_figures_of_a_stage():
    """A table without the environment of an agentic task would not be the plan."""
    frame = shipped_plan().to_frame()
    (env,) = frame[frame["gpus"] == 0].to_dict("records")
    assert (env["task"], env["role"], env["layout"], env["placed"]) == (
        "agent-7b",
        "env",
        "128 workers",
        "node0 (CPU)",
    )
    assert frame[frame["gpus"] == 0][["stage_s", "origin", "peak_mib"]].isna().all(axis=None)
    assert frame["replicas"].dtype.kind == "i"


def test_without_pandas_the_way_out_is_said(monkeypatch):
    """Pandas is no dependency of its own."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError) as told:
        shipped_plan().to_frame()
    assert told.value.exit_code == 2
    assert all((told.value.what, told.value.got, told.value.allowed, told.value.way_out))
    assert "libra-plan[pandas]" in str(told.value)
