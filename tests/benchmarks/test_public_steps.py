"""Published rows: complete, from named sources, in worlds that read; and steps timed as the commands say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import msgspec
import pytest
from sim_worlds import DECODE, TRAIN, Scoring, make_task, make_world

from libra_plan.planner.simulate.world import Costs, read_world

ROOT = Path(__file__).parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


simulated_steps = load("simulated_steps")
public_steps = load("public_steps")
model_against_simulator = load("model_against_simulator")
FAMILIES = public_steps.families()
PLACED = dict.fromkeys(("rollout", "reference", "train"), "4x1")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda each: each.world)
def test_every_row_has_its_source_and_its_gpus(family):
    """A row without provenance, or with more roles than its world, could not be checked by anyone."""
    world = read_world(ROOT / "benchmarks" / "public" / f"{family.world}.yaml")
    assert "Apache-2.0" in family.source
    assert len(world.origin) > 100
    assert family.rows[0].fit
    for row in family.rows:
        case = public_steps.case_in(world, row, {})
        assert set(case.sizes) == set(case.task.roles)
        assert case.shared == (row.mode == "colocated")


def test_some_rows_of_every_family_are_held_out():
    """A table that was fitted to all it shows would say nothing."""
    assert all(any(not row.fit for row in family.rows) for family in FAMILIES)


def test_the_pages_have_every_row_and_world():
    """A row that was left out would flatter us."""
    page = (ROOT / "docs/measurements/public_steps.md").read_text(encoding="utf-8")
    for family in FAMILIES:
        assert family.title in page
        assert all(f"| {row.name} | step | {row.step_s:.2f} |" in page for row in family.rows)
    model = (ROOT / "docs/measurements/model_against_simulator.md").read_text(encoding="utf-8")
    assert all(f"| {name} |" in model for name in model_against_simulator.shipped_worlds())


def world_of(**more):
    """Make a small world of one task with a reference."""
    costs = Costs(
        decode=(DECODE,), train=TRAIN, scoring=(Scoring(id="reference", per_token_s=1e-6),), wake_s=2.0
    )
    return make_world(make_task(costs=costs, **more))


def test_a_fit_to_stages_meets_them():
    """The fitted row must be met, or held-out rows are compared with nothing."""
    world = world_of()
    row = public_steps.Row(
        name="x", mode="colocated", placed=PLACED, step_s=99.0,
        stages={"rollout": 60.0, "reference": 3.0, "train": 9.0}, fit=("rollout", "reference", "train"),
    )  # fmt: skip
    factors = {}
    public_steps.fit_row(world, row, factors)
    found = simulated_steps.engine_s(public_steps.case_in(world, row, factors))
    for stage, seconds in row.stages.items():
        assert found[stage] == pytest.approx(seconds, rel=0.005)
    assert found["step"] == pytest.approx(60 + 3 + 9 + 3 * 2.0, rel=0.005)


def test_a_fit_to_a_step_scales_all_alike():
    """Where stages are not published, none of them may be favoured."""
    world = world_of()
    row = public_steps.Row(
        name="x", mode="colocated", placed=PLACED, step_s=50.0,
        fit=("step",),
    )  # fmt: skip
    factors = {}
    public_steps.fit_row(world, row, factors)
    assert len(set(factors.values())) == 1
    found = simulated_steps.engine_s(public_steps.case_in(world, row, factors))
    assert found["step"] == pytest.approx(50.0, rel=0.005)


@pytest.mark.parametrize(("way", "near"), [(0, 0.06), (1, 0.06), (2, 0.06), (3, 0.2)])
def test_closed_forms_and_engine_are_of_the_same_thing(way, near):
    """Each way to run a task: what is compared must be the same stages and hand-overs."""
    world = world_of(sigma=0.5, samples=128)
    _, task = list(model_against_simulator.ways(world.tasks[0]))[way]
    task = msgspec.structs.replace(task, costs=msgspec.structs.replace(task.costs, scoring=()))
    sizes = {"rollout": [1] * 3, "train": [1] * 3}
    case = simulated_steps.case_of(world, task, sizes, 800.0, shared=way == 0)
    closed, simulated = simulated_steps.closed_s(case), simulated_steps.engine_s(case)
    assert set(simulated) == {"train", "step"} | ({"rollout"} if way < 2 else set())
    for stage, seconds in simulated.items():
        assert closed[stage] == pytest.approx(seconds, rel=near)
