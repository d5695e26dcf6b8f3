"""The rules of a hand-over, in a world of sets: in whatever order, no GPU has two holders."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.planner.launchers.manifest import Lifecycle
from libra_plan.planner.runtime import journal as r
from libra_plan.planner.runtime.moves import Act, WantedRole, next_actions, runs_as_wanted, steps_to
from libra_plan.planner.runtime.state import RunState, after

GPUS = tuple(f"n0:{index}" for index in range(5))
LIFECYCLE = Lifecycle(stop_signal="SIGTERM", grace_s=1.0, checkpoint_dir="/c")


@dataclass
class World:
    """A host without processes: records are taken in, and starts are numbers."""

    state: RunState = field(default_factory=RunState)
    live: set[int] = field(default_factory=set)
    number: int = 0

    def record(self, record: r.Record) -> None:
        entry = r.Entry(number=self.number, at="", boot_s=float(self.number), record=record)
        self.number += 1
        self.state = after(self.state, entry)

    def begin(self, wanted) -> None:
        steps = steps_to(self.state, wanted, self.live)
        self.record(r.Begun(target="x", generation=1, steps=steps, force=False))

    def go_back(self, wanted) -> None:
        for task, turn in tuple(self.state.turns.items()):
            if turn.ordered is not None and not turn.stopping:
                self.record(r.Withdrawn(task=task))
        self.record(r.Back(reason="", steps=steps_to(self.state, wanted, self.live), force=False))

    def start(self, task: str, role: WantedRole) -> None:
        number = self.state.starts + 1
        self.record(
            r.Intent(
                start=number,
                task=task,
                role=role.role,
                generation=role.generation,
                gpus=role.gpus,
                trains=True,
                world_size=1,
                lifecycle=LIFECYCLE,
                log="",
                progress="",
            )
        )
        self.record(r.Started(start=number, pid=number, start_time=0.0, host="here"))
        self.record(r.Released(start=number))
        self.live.add(number)

    def act(self, action, wanted) -> None:
        task = action.step.task
        if action.act is Act.ORDER:
            self.record(r.Ordered(task=task, request="q", generation=1, folder="/c", after_step=None))
        elif action.act is Act.AWAIT_SAVED:
            self.record(r.Saved(task=task, step=1, save_s=None))
        elif action.act is Act.STOP:
            self.record(r.Stopping(task=task))
        elif action.act is Act.AWAIT_GONE:
            self.live -= {one.start for one in self.state.of(task)}
            self.record(r.Gone(task=task, memory="free"))
        elif action.act is Act.START:
            started = {one.role for one in self.state.arriving(task)}
            role = next(one for one in wanted[task] if one.role not in started)
            self.start(task, role)
        else:
            self.record(r.Through(step=action.step.id))

    def check(self) -> None:
        holders: dict[str, str] = {}
        for one in self.state.processes:
            for gpu in one.gpus:
                assert holders.setdefault(gpu, one.task) == one.task, f"{gpu} has two holders"


@st.composite
def plans(draw, generation):
    """Divide five GPUs among three tasks; a task has one role for each of its GPUs, or none."""
    owners = draw(st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=5, max_size=5))
    wanted = {}
    for task in "abc":
        gpus = [gpu for gpu, owner in zip(GPUS, owners, strict=True) if owner == task]
        if gpus:
            wanted[task] = tuple(
                WantedRole(f"role{number}", generation, (gpu,)) for number, gpu in enumerate(gpus)
            )
    return wanted


def kept_where_equal(old, new):
    """Return tasks that did not change the generation they run under, as manifests do."""
    return {
        task: old[task]
        if task in old and [one.gpus for one in old[task]] == [one.gpus for one in roles]
        else roles
        for task, roles in new.items()
    }


def run(world, wanted, data, most=400):
    for _ in range(most):
        actions = next_actions(world.state, wanted, world.live)
        if not actions:
            return
        world.act(data.draw(st.sampled_from(actions)), wanted)
        world.check()
    raise AssertionError("it never ends")


def is_at(world, wanted):
    tasks = {one.task for one in world.state.processes} | set(wanted)
    return all(runs_as_wanted(world.state.of(task), wanted.get(task, ())) for task in tasks)


@settings(max_examples=150, deadline=None)
@given(old=plans(1), new=plans(2), data=st.data())
def test_every_order_leads_to_the_new_plan_and_no_gpu_has_two_holders(old, new, data):
    """A031: what shrinks is proven gone before anything grows into its place, whatever is quicker."""
    new = kept_where_equal(old, new)
    world = World()
    world.begin(old)
    run(world, old, data)
    world.record(r.Finished(running="old", back=False))
    assert is_at(world, old)
    world.begin(new)
    run(world, new, data)
    assert is_at(world, new)
    assert world.live == {one.start for one in world.state.processes}


@settings(max_examples=150, deadline=None)
@given(old=plans(1), new=plans(2), data=st.data(), cut=st.integers(0, 60), dies=st.booleans())
def test_called_off_anywhere_the_old_plan_runs_again(old, new, data, cut, dies):
    """A031: the second half may fail after the first; then the first is undone, with the same care."""
    new = kept_where_equal(old, new)
    world = World()
    world.begin(old)
    run(world, old, data)
    world.record(r.Finished(running="old", back=False))
    world.begin(new)
    for _ in range(cut):
        actions = next_actions(world.state, new, world.live)
        if not actions:
            break
        world.act(data.draw(st.sampled_from(actions)), new)
    arrived = [one.start for one in world.state.processes if one.turn == world.state.turn]
    if dies and arrived:
        world.live.discard(data.draw(st.sampled_from(arrived)))
    world.go_back(old)
    run(world, old, data)
    assert is_at(world, old)
    assert world.live == {one.start for one in world.state.processes}


def trainer(world, wanted=None):
    wanted = wanted or {"a": (WantedRole("actor", 1, ("n0:0",)),)}
    world.begin(wanted)
    while actions := next_actions(world.state, wanted, world.live):
        world.act(actions[0], wanted)
    world.record(r.Finished(running="old", back=False))
    return wanted


def acts(world, wanted):
    return [(action.step.id, action.act) for action in next_actions(world.state, wanted, world.live)]


def test_a_task_that_trains_is_asked_to_save_before_it_is_stopped():
    """A033: a move without a checkpoint throws the run away."""
    world = World()
    trainer(world)
    world.begin({})
    assert acts(world, {}) == [("stop:a", Act.ORDER)]
    world.record(r.Ordered(task="a", request="q", generation=1, folder="/c", after_step=None))
    assert acts(world, {}) == [("stop:a", Act.AWAIT_SAVED)]
    world.record(r.Saved(task="a", step=3, save_s=0.1))
    assert acts(world, {}) == [("stop:a", Act.STOP)]


def test_a_trainer_that_has_ended_cannot_save_and_is_not_asked():
    """Waiting for a dead process would hold the hand-over up until its deadline."""
    world = World()
    trainer(world)
    world.begin({})
    world.live.clear()
    assert acts(world, {}) == [("stop:a", Act.STOP)]


def test_a_step_waits_for_the_one_that_frees_its_gpus():
    """A growing task is not even asked to save before the shrink is through."""
    world = World()
    old = {
        "a": (WantedRole("r", 1, ("n0:0",)), WantedRole("s", 1, ("n0:1",))),
        "b": (WantedRole("r", 1, ("n0:2",)),),
    }
    new = {
        "a": (WantedRole("r", 2, ("n0:0",)),),
        "b": (WantedRole("r", 2, ("n0:2",)), WantedRole("s", 2, ("n0:1",))),
    }
    trainer(world, old)
    world.begin(new)
    assert acts(world, new) == [("resize:a", Act.ORDER)]
    while acts(world, new)[0][0] == "resize:a":
        world.act(next_actions(world.state, new, world.live)[0], new)
    assert acts(world, new) == [("resize:b", Act.ORDER)]


def test_a_role_that_ended_by_itself_is_no_reason_to_restart_an_untouched_task():
    """An evaluation that is done must not begin again because another task moves."""
    world = World()
    wanted = trainer(world)
    world.live.clear()
    assert [step.action for step in steps_to(world.state, wanted, world.live)] == ["keep"]


def test_a_task_that_was_asked_to_save_and_then_left_is_started_again():
    """Leaving with status 0 after the checkpoint is allowed, and the move may be called off afterwards."""
    world = World()
    wanted = trainer(world)
    world.begin({})
    world.record(r.Ordered(task="a", request="q", generation=1, folder="/c", after_step=None))
    world.live.clear()
    world.go_back(wanted)
    assert [step.action for step in world.state.steps] == ["move"]
    world = World()
    wanted = trainer(world)
    world.begin({})
    world.record(r.Ordered(task="a", request="q", generation=1, folder="/c", after_step=None))
    world.go_back(wanted)
    assert [step.action for step in world.state.steps] == ["keep"]


def test_a_new_generation_that_never_worked_is_stopped_without_a_checkpoint():
    """It has nothing to lose, and may not be able to answer."""
    world = World()
    wanted = {"a": (WantedRole("actor", 1, ("n0:0",)),)}
    world.begin(wanted)
    world.start("a", wanted["a"][0])
    world.go_back({})
    assert acts(world, {}) == [("stop:a", Act.STOP)]


def test_what_a_failed_step_was_to_free_is_not_waited_for():
    """The steps behind it are left out, and those beside it go on."""
    world = World()
    wanted = {"a": (WantedRole("r", 1, ("n0:0",)),), "b": (WantedRole("r", 1, ("n0:1",)),)}
    world.begin(wanted)
    world.record(r.StepFailed(step="start:a", reason="why"))
    assert acts(world, wanted) == [("start:b", Act.START)]


def test_tasks_that_share_gpus_stop_together_before_either_starts():
    """Each alone would find the other on its GPUs; and who keeps running keeps the other, too."""
    world = World()
    old = {task: (WantedRole("r", 1, ("n0:0",)),) for task in "ab"}
    joint = (frozenset("ab"),)
    trainer(world, old)
    new = {task: (WantedRole("r", 2, ("n0:1",)),) for task in "ab"}
    steps = steps_to(world.state, new, world.live, joint)
    assert [(step.id, step.after) for step in steps] == [
        ("stop:a", ()),
        ("stop:b", ()),
        ("start:a", ("stop:a",)),
        ("start:b", ("stop:b",)),
    ]
    half = {"a": old["a"], "b": new["b"]}
    assert [step.action for step in steps_to(world.state, half, world.live, joint)] == ["stop"] * 2 + [
        "start"
    ] * 2
    assert [step.action for step in steps_to(world.state, old, world.live, joint)] == ["keep", "keep"]
