"""The shipped worlds: they read, say where they are from, and the public table is met as they claim."""

import msgspec
import pytest
from sim_worlds import FixedPlacement, hold, make_task, make_world

from libra_plan.errors import WorkloadError
from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.world import Costs, Site, read_world, shipped_worlds

STEP_S = {32: 790.10, 64: 365.28, 128: 356.30}
"""Seconds a step in verl's table (docs, fully_async.md, 7B, colocated), by GPUs."""


@pytest.mark.parametrize("name", sorted(shipped_worlds()))
def test_every_shipped_world_reads_and_names_its_origin(name):
    """A figure without an origin could have been tuned to a result."""
    world = read_world(shipped_worlds()[name])
    assert world.id == name
    assert len(world.origin) > 100


@pytest.mark.parametrize("gpus", sorted(STEP_S))
def test_the_verl_world_meets_the_public_step_times_within_25_percent(gpus):
    """The world says so; the error of each row is printed."""
    world = read_world(shipped_worlds()["verl-dapo-7b-64"])
    world = msgspec.structs.replace(world, site=Site(gpus=gpus), hours=1500.0 / 3600.0)
    placed = hold(
        world,
        "dapo",
        shared=True,
        **{"rollout": [1] * gpus, "log-probabilities": [1] * gpus, "train": [1] * gpus},
    )
    seconds = run_world(world, FixedPlacement(placed), seed=0).steps[0].at_s
    print(f"verl 7B DAPO on {gpus} GPUs: {STEP_S[gpus]} s published, {seconds:.1f} s simulated")
    assert seconds == pytest.approx(STEP_S[gpus], rel=0.25)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"coupling": "async"}, "async needs staleness"),
        ({"costs": Costs()}, "it would do nothing"),
        (
            {"responses": {"first_mean_tokens": 800, "sigma": 1, "max_tokens": 900_000}},
            "does not fit kv_tokens",
        ),
    ],
)
def test_what_a_schema_cannot_say_is_refused_with_a_reason(tmp_path, more, words):
    """A world that cannot run must not fail in the middle of a night's sweep."""
    world = make_world(make_task())
    data = msgspec.to_builtins(world)
    data["tasks"][0].update(msgspec.to_builtins(more))
    path = tmp_path / "bad.yaml"
    path.write_bytes(msgspec.yaml.encode(data))
    with pytest.raises(WorkloadError, match=words):
        read_world(path)


def test_coefficients_are_those_of_the_file():
    """What a user writes is what a decode step takes."""
    costs = read_world(shipped_worlds()["drift-search-48"]).tasks[0].costs.decode[0]
    assert costs.coefficients() == DecodeCoefficients(0.0181, 1.9e-4, 1e-7, 0.0)
