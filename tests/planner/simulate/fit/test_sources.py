"""Recordings are known by what is in them; what cannot be read is refused or told."""

import json
import math
from pathlib import Path

import pytest
from sqlalchemy import insert

from libra_plan.errors import InputError
from libra_plan.planner.controller.store import StateStore
from libra_plan.planner.controller.store_schema import outcomes
from libra_plan.planner.simulate.fit.sources import read_recordings
from libra_plan.planner.telemetry.readers import ReaderFacts

DATA = Path(__file__).parents[3] / "data"
H200 = Path(__file__).parents[4] / "examples/two_tasks/h200/measured"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("readers/verl.jsonl", "verl's metrics"),
        ("readers/nemo_rl.jsonl", "NeMo-RL's metrics"),
        ("readers/slime.log", "slime's metrics"),
        ("readers/vllm.prom", "vLLM's pages of metrics"),
        ("telemetry/h200_x2", "a monitor's recording"),
    ],
)
def test_the_sample_recordings_of_the_readers_are_known(path, kind):
    """Nobody should have to name the framework that wrote a file."""
    found = read_recordings([DATA / path], ReaderFacts("rl", gpus=16, samples=2048))
    assert found.used[0][1] == kind


def test_the_h200_pair_was_watched_without_a_failure():
    """A monitor's recording tells GPUs and the hours in which none was lost."""
    found = read_recordings([DATA / "telemetry/h200_x2"], ReaderFacts())
    assert (found.gpus, found.gpus_per_node, found.failures) == (2, 2, 0)
    assert 0.0 < found.gpu_hours < 1.0


def test_the_measured_loops_have_their_steps():
    """Ten steps of generator and trainer on one GPU each, as measured."""
    seen = read_recordings([H200 / "long/separate/steps.jsonl"], ReaderFacts()).tasks["long"]
    assert [len(seen.stages[role]) for role in ("generator", "trainer")] == [10, 10]
    assert seen.stages["generator"][0].placed == (1,)
    assert seen.responses[0] == (0, 512.0)


def test_lengths_trajectories_and_moves_are_read(tmp_path):
    """The three small formats; a torn line is left out and told."""
    (tmp_path / "lengths.txt").write_text("tokens\n100\n200\n300\n")
    lines = [
        json.dumps({"response_tokens": 900, "prompt_tokens": 90, "turns": 3, "tool_s": [1.5, 2.0]}),
        json.dumps({"response_tokens": 0}),
        '{"response_tokens": 7',
    ]
    (tmp_path / "trajectories.jsonl").write_text("\n".join(lines) + "\n")
    move = {
        "schema_version": 1, "task": "rl", "action": "move", "gpu_class": None, "gpus_before": 1,
        "gpus_after": 2,
        "checkpoint_s": None, "drain_s": None, "save_s": 4.0, "stop_s": None, "lost_s": 30.0, "at": "now",
        "roles": [{"role": "actor", "gpus": 2, "start_s": 7.0, "load_s": 5.0, "warm_up_s": None}],
    }  # fmt: skip
    (tmp_path / "switch_costs.jsonl").write_text(json.dumps(move) + "\n")
    found = read_recordings([tmp_path], ReaderFacts())
    seen = found.tasks[""].trajectories
    assert sorted(each.response_tokens for each in seen) == [100, 200, 300, 900]
    assert (found.starts_s, found.saves_s, found.loads_s) == ([7.0], [("rl", 4.0)], [("rl", 5.0)])
    assert len(found.left_out) == 2


def test_what_came_of_decisions_is_the_models_error(tmp_path):
    """The re-plan loop's record holds predicted and realised seconds of applied changes."""
    path = tmp_path / "state.db"
    store = StateStore.open(path)
    with store.begin() as connection:
        for look, (predicted, realised) in enumerate([(10.0, 11.0), (10.0, 9.0)], start=1):
            row = {"look": look, "task": "rl", "role": "actor", "predicted_s": predicted,
                   "realised_s": realised, "seen_at_look": look + 1}  # fmt: skip
            connection.execute(insert(outcomes).values(row))
    store.close()
    found = read_recordings([path], ReaderFacts())
    assert found.errors == pytest.approx([math.log(1.1), math.log(0.9)])


@pytest.mark.parametrize("text", ["", "hello\nworld\n", '{"a": 1}\n'])
def test_a_file_of_no_known_kind_is_refused_with_the_kinds_there_are(tmp_path, text):
    """The user learns what can be read."""
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(InputError, match="verl"):
        read_recordings([tmp_path / "x.jsonl"], ReaderFacts())


def test_a_path_that_is_not_there_is_refused(tmp_path):
    """An empty fit would be worse."""
    with pytest.raises(InputError, match="no such recording"):
        read_recordings([tmp_path / "nowhere"], ReaderFacts())
