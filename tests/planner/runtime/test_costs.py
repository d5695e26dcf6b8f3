"""What a move cost, from the journal's clock and the roles' reports."""

from __future__ import annotations

import json

import plans

from libra_plan.planner.launchers.manifest import Lifecycle, Transition
from libra_plan.planner.runtime import journal as r
from libra_plan.planner.runtime.costs import append_costs, costs_of, forecasts
from libra_plan.planner.runtime.state import RunState, after
from libra_plan.profiles.switch_costs import SwitchPrice, read_switch_costs

NODE = plans.single_node().spec.nodes[0]
STEP = Transition(id="move:t", task="t", action="move", gpus_before=1, gpus_after=1, after=())
LIFECYCLE = Lifecycle(stop_signal="SIGTERM", grace_s=1.0, checkpoint_dir="/c")


def told(progress, *marks):
    progress.write_text("".join(json.dumps({"mark": mark, "boot_s": at}) + "\n" for mark, at in marks))


def moved(progress, *, ordered=True, save_s=2.0, began=100.0, steps=(STEP,)):
    """Fold a move whose parts take 5 s (2 of them saving), 3 s and, from 110 s on, the start."""
    records = [(began - 1, r.Begun(target="x", generation=2, steps=steps, force=False))]
    if ordered:
        order = r.Ordered(task="t", request="q", generation=1, folder="/c", after_step=None)
        records += [(began, order), (began + 5, r.Saved(task="t", step=9, save_s=save_s))]
    intent = r.Intent(
        start=2,
        task="t",
        role="actor",
        generation=2,
        gpus=("n0:1",),
        trains=True,
        world_size=1,
        lifecycle=LIFECYCLE,
        log="",
        progress=str(progress),
    )
    records += [
        (began + 5, r.Stopping(task="t")),
        (began + 8, r.Gone(task="t", memory="free")),
        (began + 9, intent),
        (began + 9, r.Started(start=2, pid=1, start_time=0.0, host="here")),
        (began + 10, r.Released(start=2)),
        (began + 60, r.Through(step="move:t")),
    ]
    state = RunState()
    for number, (boot_s, record) in enumerate(records):
        state = after(state, r.Entry(number=number, at="", boot_s=boot_s, record=record))
    return state


def record_of(state, steps=(STEP,)):
    (record,) = costs_of(state, steps, NODE, "2026-01-01T00:00:00+00:00")
    return record


def test_each_part_is_measured_and_the_loss_is_their_sum(tmp_path):
    """Draining goes on with work; saving, stopping, starting, loading and warming up do not."""
    progress = tmp_path / "p"
    told(progress, ("polls", 130.0), ("loading", 117.0), ("loaded", 121.0), ("warm", 126.5))
    record = record_of(moved(progress))
    assert (record.checkpoint_s, record.drain_s, record.save_s, record.stop_s) == (5.0, 3.0, 2.0, 3.0)
    (role,) = record.roles
    assert (role.start_s, role.load_s, role.warm_up_s) == (7.0, 4.0, 5.5)
    assert record.lost_s == 2.0 + 3.0 + 7.0 + 4.0 + 5.5
    assert record.gpu_class == plans.GPU_CLASS


def test_without_reports_the_loss_is_not_known(tmp_path):
    """Unknown is not 0: such a move must not make moves look cheap."""
    record = record_of(moved(tmp_path / "none"))
    assert record.stop_s == 3.0
    assert record.roles[0].start_s is None
    assert record.lost_s is None


def test_a_program_that_does_not_time_its_saving_is_charged_from_the_order_on(tmp_path):
    """The time to drain and save is known only together then."""
    progress = tmp_path / "p"
    told(progress, ("warm", 120.0))
    record = record_of(moved(progress, save_s=None))
    assert (record.drain_s, record.save_s) == (None, None)
    assert record.lost_s == 5.0 + 3.0 + 10.0


def test_a_task_that_saves_nothing_loses_no_time_saving(tmp_path):
    """An evaluation is stopped and started; that is all its move costs."""
    progress = tmp_path / "p"
    told(progress, ("warm", 120.0))
    record = record_of(moved(progress, ordered=False))
    assert record.checkpoint_s is None
    assert record.lost_s == 3.0 + 10.0


def test_a_host_that_was_started_again_in_between_gives_no_duration(tmp_path):
    """A078: its clock began anew, so a difference would be negative or wrong."""
    progress = tmp_path / "p"
    told(progress, ("warm", 3.0))
    record = record_of(moved(progress))
    assert record.roles[0].start_s is None
    assert record.lost_s is None


def test_an_early_stop_and_a_late_start_are_one_move(tmp_path):
    """Swapping tasks are split into two steps, and the task pays once."""
    steps = (
        Transition(id="stop:t", task="t", action="stop", gpus_before=2, gpus_after=0, after=()),
        Transition(id="move:t", task="t", action="start", gpus_before=0, gpus_after=1, after=()),
        Transition(id="keep:u", task="u", action="keep", gpus_before=1, gpus_after=1, after=()),
    )
    record = record_of(moved(tmp_path / "none", steps=steps), steps)
    assert (record.action, record.gpus_before, record.gpus_after) == ("move", 2, 1)


def test_records_follow_whole_lines_only(tmp_path):
    """A line that a crash cut off is replaced, and everything else stays."""
    store = tmp_path / "profiles" / "switch_costs.jsonl"
    record = record_of(moved(tmp_path / "none"))
    append_costs(store, [])
    assert not store.exists()
    append_costs(store, [record])
    with store.open("ab") as file:
        file.write(b'{"schema_ver')
    assert read_switch_costs(store) == [record]
    append_costs(store, [record])
    assert read_switch_costs(store) == [record, record]


def step(action, task="grpo"):
    return Transition(id=f"{action}:{task}", task=task, action=action, gpus_before=1, gpus_after=2, after=())


def test_recorded_moves_go_before_given_starts_and_nothing_is_made_up():
    """A number says what it rests on; a stop was never measured here, so it has none."""
    prices = {"grpo": SwitchPrice(31.5, 7)}
    steps = [step("resize"), step("start"), step("stop"), step("keep"), step("move", "other")]
    found = forecasts(steps, plans.single_node(), prices, {plans.GPU_CLASS: 8.32})
    assert [(one.seconds, one.origin) for one in found] == [
        (31.5, "measured"),
        (8.32, "assumed"),
        (None, None),
        (0.0, None),
        (None, None),
    ]
    assert forecasts([step("start")], None, prices, {plans.GPU_CLASS: 8.32})[0].seconds is None
