"""Check that a hand-over is allowed and safe before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from libra_plan.errors import LaunchError
from libra_plan.planner.launchers.manifest import Manifest, TaskEntry, Transition
from libra_plan.planner.launchers.tasks import runs_on_as
from libra_plan.planner.runtime.checkpoints import newest
from libra_plan.planner.runtime.moves import Goal
from libra_plan.planner.runtime.state import RunState

__all__ = ["refuse_elsewhere", "refuse_open", "refuse_stale", "refuse_unsafe"]

_FROM_WHAT_RUNS = (
    "solve again from what runs: libra-plan solve … --from RUN, where RUN is the --folder it runs in, "
    "or stop it first with `libra-plan stop --yes`"
)


def refuse_open(state: RunState) -> None:
    """Refuse to begin while another hand-over is unfinished."""
    if state.open:
        target = "nothing" if state.target is None else state.target[:19]
        raise LaunchError(
            "another hand-over is unfinished",
            got=f"one to {target}" + (f" ({state.stuck})" if state.stuck else ""),
            way_out="`libra-plan apply --yes` finishes it, `libra-plan apply --back --yes` calls it off",
        )


def refuse_stale(state: RunState, running: Manifest | None, new: Manifest, *, first: bool) -> None:
    """Refuse a manifest of another cluster, or one that is older than what runs."""
    if first and (running is not None or state.processes):
        generation = "what is left" if running is None else f"generation {running.metadata.generation}"
        raise LaunchError(
            "roles of this folder run already",
            got=generation,
            way_out="move them with `libra-plan apply`, or name another --folder if they use other GPUs",
        )
    if running is None or new.metadata.digest == running.metadata.digest:
        return
    if new.metadata.name != running.metadata.name:
        raise LaunchError(
            "the manifest is of another plan", got=new.metadata.name, allowed=running.metadata.name
        )
    if new.metadata.generation <= running.metadata.generation:
        raise LaunchError(
            "the manifest is no later one than what runs",
            got=f"generation {new.metadata.generation}",
            allowed=f"later than {running.metadata.generation}",
            way_out=_FROM_WHAT_RUNS,
        )
    known = {task.id: task for task in running.spec.tasks}
    strange = [
        task.id
        for task in new.spec.tasks
        if task.id in known
        and task.generation == known[task.id].generation
        and not runs_on_as(known[task.id], running.spec.nodes, task, new.spec.nodes)
    ]
    if strange:
        raise LaunchError(
            "the manifest does not come from what runs: it would keep tasks as they never ran here",
            got=", ".join(strange),
            way_out=_FROM_WHAT_RUNS,
        )


def refuse_elsewhere(state: RunState, here: str, *, force: bool) -> None:
    """Refuse to act on another host than the one where roles run: they cannot be seen from here."""
    others = {one.host for one in state.processes if one.host not in (None, here)}
    if others and not force:
        raise LaunchError(
            "roles of this folder were started on another host",
            got=f"this host is {here}",
            allowed=", ".join(sorted(filter(None, others))),
            way_out="go there; if that host is gone for good, --force goes on from the newest checkpoints",
        )


def refuse_unsafe(
    state: RunState,
    before: Manifest | None,
    target: Manifest | None,
    goal: Goal,
    steps: Iterable[Transition],
    node: str,
    *,
    force: bool,
) -> None:
    """Refuse moves that would lose work, or that this host cannot make alone, with every reason."""
    moved = [step for step in steps if step.action != "keep"]
    tasks = dict.fromkeys(step.task for step in moved)
    reasons = [
        *_elsewhere(tasks, before, target, node),
        *(() if force else _unsaved(state, moved)),
        *_resharding(state, goal, tasks),
    ]
    if reasons:
        raise LaunchError("this hand-over is not safe", got="; ".join(reasons))


def _elsewhere(
    tasks: Iterable[str], before: Manifest | None, target: Manifest | None, node: str
) -> Iterator[str]:
    old = {} if before is None else {task.id: task for task in before.spec.tasks}
    new = {} if target is None else {task.id: task for task in target.spec.tasks}
    for task in tasks:
        if task not in old:
            continue  # the task only starts: its ranks on other nodes wait for those here
        nodes = _nodes(old[task]) | (_nodes(new[task]) if task in new else set())
        others = sorted(nodes - {node})
        if others:
            named = ", ".join(others)
            yield f"{task} also has ranks on {named}, and one host cannot prove that those are gone"


def _nodes(task: TaskEntry) -> set[str]:
    ranks = {member.node for role in task.roles for member in role.members}
    return ranks | {share.node for role in task.roles if role.command for share in role.cpu}


def _unsaved(state: RunState, steps: Iterable[Transition]) -> Iterator[str]:
    """A033: a task that trains is stopped only after it has saved."""
    for task in dict.fromkeys(step.task for step in steps):
        for one in state.of(task):
            if one.trains and one.lifecycle.checkpoint_dir is None:
                yield (
                    f"{task}/{one.role} trains and has no checkpoint_dir, so stopping it loses its work: "
                    "state `lifecycle: {checkpoint_dir: …}` and start it again, or give --force"
                )


def _resharding(state: RunState, goal: Goal, tasks: Iterable[str]) -> Iterator[str]:
    """A034: a checkpoint of so many ranks loads on as many, unless the task declares otherwise."""
    for (task, role), agent in goal.agents.items():
        if task not in tasks or (task, role) not in goal.trains:
            continue
        lifecycle = goal.lifecycles[task]
        saved = {one.world_size for one in state.of(task) if one.role == role}
        if not saved and lifecycle.checkpoint_dir is not None:
            found = newest(Path(state.working_folder, lifecycle.checkpoint_dir), lifecycle)
            saved = set() if found is None or found.world_size is None else {found.world_size}
        if saved - {agent.world_size} and lifecycle.reshardable is not True:
            yield (
                f"{task}/{role} has a checkpoint of {saved.pop()} ranks and would get {agent.world_size}: "
                "state `lifecycle: {reshardable: true}` if its checkpoints load on any number"
            )
