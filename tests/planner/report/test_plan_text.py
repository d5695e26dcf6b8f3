"""What people read of a plan must be what the plan holds."""

from __future__ import annotations

from dataclasses import replace

from plans import cluster as cluster_of
from plans import plan_of, problem_of, role, running
from shipped_plan import shipped_plan

from libra_plan.models.topology import GpuId
from libra_plan.planner.plan import DeadlineSlack, Pass, QueuedTask, TeamShare
from libra_plan.planner.report.plan_text import gpus_by_node, plan_text, proof_lines, seconds_text
from libra_plan.planner.report.text_table import Page


def two_tasks():
    """Return a problem and a plan of two tasks on two nodes, one GPU free and a third task waiting."""
    where = cluster_of(4, 2)
    placed = [
        running("a", [role("actor", [["n0:0", "n0:1"]], tp=2)]),
        running("b", [role("rollout", [["n0:2"], ["n1:0"]])]),
    ]
    return problem_of(where, placed), plan_of(placed, [QueuedTask("c", "worth", "c: not worth it")])


def test_every_role_is_shown_with_its_gpus():
    """Whoever looks for a GPU must find who has it."""
    problem, plan = two_tasks()
    lines = plan_text(problem, plan).splitlines()
    assert any(line.startswith("a") and "n0:0-1" in line for line in lines)
    assert any("rollout" in line and "n0:2 n1:0" in line for line in lines)
    assert "waits [worth] c: not worth it" in lines


def test_the_map_has_one_letter_for_each_gpu():
    """The map is how people see at a glance what is free."""
    problem, plan = two_tasks()
    lines = plan_text(problem, plan).splitlines()
    assert "n0  A A B ·" in lines
    assert "n1  B ·" in lines
    assert "A = a  B = b  · = free" in lines


def test_nodes_that_look_alike_are_drawn_once():
    """A map of a thousand free nodes would bury the plan."""
    placed = [running("a", [role("actor", [["n0:0"]])])]
    text = plan_text(problem_of(cluster_of(*[2] * 9), placed), plan_of(placed))
    assert "n1…n8 (8 nodes)  · ·" in text


def test_a_bound_is_called_proven_only_when_it_was_recomputed():
    """The reader must not take the solver's word for a proof."""
    _, plan = two_tasks()
    assert "(claimed; gap" in next(proof_lines(plan))
    assert "(proven by search; gap" in next(proof_lines(replace(plan, proven_by="search")))


def test_what_a_policy_promised_is_listed():
    """Costs, teams, tiers and missed deadlines are why a plan is as it is."""
    problem, plan = two_tasks()
    proof = replace(
        plan.certificate,
        cost_per_hour=12.5,
        budget_per_hour=20.0,
        passes=(Pass("tier 1", 1.0, 1.25),),
        teams=(TeamShare("red", 2, 3, 1, 0.5, 0.75),),
        deadlines=(DeadlineSlack("a", None, 0.01, 0.02, None),),
    )
    text = plan_text(problem, replace(plan, certificate=proof))
    assert "cost: 12.50 an hour, of a budget of 20.00" in text
    assert "tier 1: 1.000000, no plan betters 1.250000" in text
    assert "team red: 3 GPUs, 1 of them borrowed (quota 2)" in text
    assert "missed [deadline] a: asks more than it can have, has 36 steps/h" in text
    assert "? with the other deadlines kept" in text


def test_the_text_fits_the_page_where_words_allow():
    """On a terminal a table that is wider than the screen is no table."""
    plan = shipped_plan()
    tables = plan_text(plan.known_problem, plan, Page(100)).split("\n\n")[:2]
    assert max(len(line) for table in tables for line in table.splitlines()) <= 100
    assert plan_text(plan.known_problem, plan) == plan.summary()


def test_gpus_are_written_as_ranges():
    """Sixteen numbers in a cell hide the one that is missing."""
    gpus = [GpuId("n0", at) for at in (0, 1, 2, 5)] + [GpuId("n1", 7)]
    assert gpus_by_node(gpus) == "n0:0-2,5 n1:7"


def test_seconds_have_three_digits():
    """More digits than the model knows would promise too much."""
    assert [seconds_text(value) for value in (0.12345, 12.345, 99.4, 1234.5)] == [
        "0.123",
        "12.3",
        "99.4",
        "1,234",
    ]
