"""What a look is told by counters, the monitor and checkpoints that lie on disk."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fake_nvml import Hands
from plans import cluster as cluster_of
from plans import plan_of, problem_of, role, running
from telemetry_cases import gpu, recorder, sample

from libra_plan.models.topology import GpuId
from libra_plan.planner.controller.facts import Sources, read_observations
from libra_plan.planner.controller.state import Clock, LoopState, TaskClock, read_clocks
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.document import placements_of
from libra_plan.planner.runtime.worker import save_complete, step_folder
from libra_plan.planner.telemetry.observations import EventKind
from libra_plan.planner.telemetry.recording import read_tail
from libra_plan.planner.telemetry.sample import GpuState
from libra_plan.profiles.schema import Fixed, LifecycleSpec, RoleSpec, TaskSpec, WorkloadFile, WorkSpec


class Lab:
    """A task of two roles on four GPUs, and places for its telemetry."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        where = cluster_of(4)
        placed = running("t", [role("actor", [["n0:0"], ["n0:1"]])], [role("rollout", [["n0:2"], ["n0:3"]])])
        problem = problem_of(where, [placed])
        self.parent = build_manifest(problem, plan_of([placed]), name="lab")
        self.problem = replace(problem, running=placements_of(self.parent))
        roles = (RoleSpec(id="actor", kind="actor_train"), RoleSpec(id="rollout", kind="rollout"))
        work = WorkSpec(samples=8, prompt_tokens=Fixed(tokens=16))
        lifecycle = LifecycleSpec(checkpoint_dir="ckpt")
        task = TaskSpec(id="t", work_per_step=work, roles=roles, lifecycle=lifecycle)
        self.workload = WorkloadFile(schema_version=1, tasks=(task,))

    def windows(self, *lines: dict[str, object]) -> None:
        (self.folder / "telemetry").mkdir(exist_ok=True)
        text = "".join(json.dumps(each) + "\n" for each in lines)
        (self.folder / "telemetry" / "run.jsonl").write_text(text, encoding="utf-8")

    def look(self, state: LoopState = LoopState(), **more: object):  # noqa: B008
        monitor = more.get("monitor")
        sources = Sources(
            self.folder,
            self.folder,
            telemetry=(self.folder / "telemetry",),
            observations=more.get("observations"),
            working_folder=self.folder,
        )
        samples = [] if monitor is None else [each.sample for each in read_tail(monitor, 300.0, [])]
        return read_observations(
            sources, self.workload, self.problem, self.parent, state, read_clocks(), samples
        )


def line(ago_s: float, **more: object) -> dict[str, object]:
    """Return ten steps done in 100 s that ended so long ago."""
    end = 5000.0 - ago_s
    given = {"task": "t", "role": "actor", "source": "p", "start_s": end - 100.0, "t_s": end, "steps": 10}
    return {**given, "utc_s": time.time() - ago_s, **more}


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_nothing_named_is_no_telemetry(lab: Lab) -> None:
    """None, not an empty window: what nobody looked at is not quiet."""
    assert lab.look() is None


def test_steps_become_stage_seconds_without_the_waiting(lab: Lab) -> None:
    """A rank that waits for others is not slow; ranks of a role take their steps together."""
    lab.windows(line(5.0, waiting_s=40.0), line(5.0, dp_rank=1, source="q", steps=99))
    window = lab.look()
    assert window is not None
    (seen,) = window.seen
    assert (seen.role, seen.seconds) == ("actor", pytest.approx(6.0))
    assert window.progress[0].steps == 10.0
    assert window.until_s == pytest.approx(read_clocks().wall_s - 5.0, abs=30.0)


def test_passes_of_an_engine_are_no_steps_of_the_task(lab: Lab) -> None:
    """Windows with batch and length are compared with profiles, by `profile drift`."""
    lab.windows(line(5.0, role="rollout", batch_sequences=8, seq_len_tokens=100, stalest=2, samples=4))
    window = lab.look()
    assert window is not None
    assert window.seen == ()
    assert [(load.role, load.staleness) for load in window.loads] == [("rollout", 2.0)]


def test_old_windows_do_not_count(lab: Lab) -> None:
    """What was an hour ago is not what is."""
    lab.windows(line(3600.0))
    assert lab.look() is None


def test_progress_counts_from_the_placement(lab: Lab) -> None:
    """Steps done before the last move say nothing of the new place."""
    lab.windows(line(200.0), line(5.0, start_s=4995.0 - 50.0, steps=4))
    state = LoopState(clock=Clock(1000.0), clocks=(TaskClock("t", placed_s=900.0),))
    window = lab.look(state)
    assert window is not None
    assert window.progress[0].steps == 4.0


def test_a_complete_checkpoint_has_an_age(lab: Lab) -> None:
    """A033: only one that is complete counts; none is None, never 0."""
    lab.windows(line(5.0))
    window = lab.look()
    assert window is not None
    assert window.checkpoints[0].age_s is None
    place = step_folder(7, lab.folder / "ckpt")
    (place / "weights").write_bytes(b"1")
    save_complete(7, [place / "weights"], lab.folder / "ckpt", world_size=2)
    window = lab.look()
    assert window is not None
    assert window.checkpoints[0].age_s is not None
    assert window.checkpoints[0].age_s < 120.0


def test_the_monitor_tells_of_lost_and_of_busy_gpus(lab: Lab) -> None:
    """A048, A038: XID 79 is a lost GPU; one busy GPU of two is an imbalance, not a shortage."""
    hands = Hands()
    record = recorder(lab.folder / "monitor", hands)
    uuids = [f"GPU-n0-{index}" for index in range(4)]
    cards = [gpu(index, busy) for index, busy in enumerate((90.0, 0.0, 50.0, 50.0))]
    cards = [type(card)(**{n: getattr(card, n) for n in card.__struct_fields__} | {"uuid": uuid})
             for card, uuid in zip(cards, uuids, strict=True)]  # fmt: skip
    lost = type(cards[3])(uuid=uuids[3], index=3, state=GpuState.LOST, xids=(79,))
    record.write(sample(0.0, *cards))
    record.write(sample(1.0, *cards[:3], lost))
    record.close()
    window = lab.look(monitor=lab.folder / "monitor")
    assert window is not None
    (event,) = window.events
    assert (event.kind, event.gpu, event.detail) == (EventKind.GPU_LOST, GpuId("n0", 3), "XID 79")
    busy = {load.role: load.gpus_busy for load in window.loads}
    assert busy["actor"] == pytest.approx((0.9, 0.0))
    assert window.until_s == 0.0


def test_a_file_nobody_writes_any_more_is_not_made_fresh_by_counters(tmp_path: Path) -> None:
    """Its checkpoint was 5 s old an hour ago; a GPU that was lost then still is."""
    lab = Lab(tmp_path)
    lab.windows(line(0.0))
    told = {
        "until_s": time.time() - 3600.0,
        "checkpoints": [{"task": "t", "age_s": 5}],
        "events": [
            {"kind": "gpu-lost", "gpu": {"node": "n0", "index": 3}},
            {"kind": "out-of-memory", "task": "t"},
        ],
    }
    path = tmp_path / "told.json"
    path.write_text(json.dumps(told))
    window = lab.look(observations=path)
    assert window is not None
    assert window.until_s > time.time() - 60.0
    assert [each.age_s for each in window.checkpoints] == [None]
    assert [each.kind for each in window.events] == [EventKind.GPU_LOST]


def test_steps_from_before_a_move_price_no_other_form(tmp_path: Path) -> None:
    """The windows of the last minutes were the old placement's: they say nothing of the new one."""
    lab = Lab(tmp_path)
    lab.windows(line(60.0))
    placed = LoopState(clock=Clock(1000.0, read_clocks()), clocks=(TaskClock("t", placed_s=990.0),))
    before, after = lab.look(), lab.look(placed)
    assert before is not None
    assert after is not None
    assert [each.role for each in before.seen] == ["actor"]
    assert after.seen == ()


def test_a_window_that_straddles_a_move_prices_no_form(tmp_path: Path) -> None:
    """It ended after the move, but part of its steps were the old placement's."""
    lab = Lab(tmp_path)
    lab.windows(line(5.0), line(2.0, start_s=4998.0 - 20.0, steps=4))
    state = LoopState(clock=Clock(1000.0, read_clocks()), clocks=(TaskClock("t", placed_s=950.0),))
    found = lab.look(state)
    assert found is not None
    assert [(each.role, each.seconds) for each in found.seen] == [("actor", pytest.approx(5.0))]
    assert [each.steps for each in found.progress] == [4.0]


def test_windows_of_an_earlier_generation_say_nothing_of_this_one(tmp_path: Path) -> None:
    """A restart under a new plan keeps its file's name; only the generation tells the two apart."""
    lab = Lab(tmp_path)
    lab.windows(line(6.0, generation=0, steps=99), line(5.0, source="q", generation=1))
    window = lab.look()
    assert window is not None
    assert [each.steps for each in window.progress] == [10.0]
