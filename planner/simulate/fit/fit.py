"""Fit a world: from a base world and what recordings hold, with the origin of every figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from libra_plan.errors import InputError, WorkloadError
from libra_plan.models.fit import FittedProfile
from libra_plan.planner.simulate.fit.figures import Figure, Found
from libra_plan.planner.simulate.fit.lengths import fit_work
from libra_plan.planner.simulate.fit.profiled import with_profiles
from libra_plan.planner.simulate.fit.recorded import Placed, Recorded, TaskSeen
from libra_plan.planner.simulate.fit.rollouts import fit_rollout
from libra_plan.planner.simulate.fit.site import fit_error, fit_failures, fit_site, fit_switching
from libra_plan.planner.simulate.fit.trainers import fit_scoring, fit_training
from libra_plan.planner.simulate.world import World, WorldTask

__all__ = ["Fit", "fit_world"]

_TRAINERS = ("train", "actor", "trainer")
_ROLLOUTS = ("rollout", "generator")


@dataclass(frozen=True)
class Fit:
    """A fitted world: what was fitted, what stays assumed (figure and why), what a reader should doubt."""

    world: World
    base: str
    figures: tuple[Figure, ...]
    assumed: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]


def fit_world(
    base: World,
    seen: Recorded,
    placed: Mapping[str, Placed] | int | None,
    name: str,
    profiles: Sequence[FittedProfile] = (),
) -> Fit:
    """Fit what the recordings hold; `placed` says where roles ran, for recordings that do not.

    An int: every role on all of so many GPUs, in replicas of the base's sizes. `profiles` stand in for the
    base's costs, of all tasks, before they are scaled to what was recorded.
    """
    found = Found()
    base = _on_profiles(base, profiles, found)
    tasks, most = [], 0
    seen = replace(seen, tasks=_matched(base, seen))
    for task in base.tasks:
        own = seen.tasks.get(task.id)
        if own is None:
            found.keep(task.id, "nothing of this task was recorded: all of it is the base's")
            tasks.append(task)
            continue
        own = _placed(task, own, placed)
        most = max(most, _held(own, placed))
        tasks.append(_fitted(base, task, own, found))
    if not any("." in figure.key and figure.key.split(".")[0] in base.task_of for figure in found.figures):
        _refuse(base, seen, found)
    world = msgspec.structs.replace(
        base,
        id=name,
        tasks=tuple(tasks),
        site=fit_site(base, seen, most, found, told=placed is not None),
        failures=fit_failures(base, seen, found),
        switching=fit_switching(base, seen, found),
        model_error=fit_error(base, seen, found),
    )
    world = msgspec.structs.replace(world, origin=_origin(base, seen, found))
    return Fit(world, base.id, tuple(found.figures), tuple(found.assumed), tuple(found.doubts))


def _on_profiles(base: World, profiles: Sequence[FittedProfile], found: Found) -> World:
    tasks = []
    for task in base.tasks:
        new, said = with_profiles(task, profiles)
        tasks.append(new)
        found.profiled += said
    return msgspec.structs.replace(base, tasks=tuple(tasks))


def _refuse(base: World, seen: Recorded, found: Found) -> None:
    """Stop where nothing of any task could be fitted and nothing of the site was watched."""
    if seen.failures or seen.starts_s or seen.errors:
        return
    why = [f"{key}: {reason}" for key, reason in found.assumed if key.split(".")[0] in base.task_of]
    raise WorkloadError(
        "the recording cannot support a fit",
        got="; ".join(why[:4]) or "nothing of a task",
        allowed="at least one figure of a task that enough steps, windows or trajectories tell",
        way_out="record for longer; --placed tells the GPUs of roles, --samples the samples of a step",
    )


def _matched(base: World, seen: Recorded) -> dict[str, TaskSeen]:
    """Give what was seen by the base's tasks; a recording that names no task is of the only one."""
    known = base.task_of
    strangers = [name for name in seen.tasks if name and name not in known]
    if len(base.tasks) == 1:
        named = [name for name in seen.tasks if name]
        if len(named) > 1:
            raise InputError(
                "recordings of several tasks, and the base world has one",
                got=", ".join(named), allowed=base.tasks[0].id, way_out="give those of one task",
            )  # fmt: skip
        return {base.tasks[0].id: _joined(list(seen.tasks.values()))} if seen.tasks else {}
    if strangers or "" in seen.tasks:
        raise InputError(
            "recordings of a task that the base world does not have",
            got=", ".join(strangers) or "no name of a task",
            allowed=", ".join(known),
            way_out="name it with --task, or rename the base's tasks",
        )
    return seen.tasks


def _joined(parts: list[TaskSeen]) -> TaskSeen:
    whole = TaskSeen()
    for part in parts:
        for role, rows in part.stages.items():
            whole.stages.setdefault(role, []).extend(rows)
        whole.decode += part.decode
        whole.responses += part.responses
        whole.wholes += part.wholes
        whole.samples += part.samples
        whole.trajectories += part.trajectories
        whole.source = whole.source or part.source
    return whole


def _placed(task: WorldTask, seen: TaskSeen, placed: Mapping[str, Placed] | int | None) -> TaskSeen:
    """Give stages that do not tell their GPUs those that the user told."""
    if placed is None:
        return seen
    names = _names(task, seen)
    stages = {}
    for role, rows in seen.stages.items():
        own = names.get(role, role)
        sizes = _sizes(task, own, placed)
        stages[role] = [replace(row, placed=row.placed or sizes) for row in rows]
    return replace(seen, stages=stages)


def _sizes(task: WorldTask, role: str, placed: Mapping[str, Placed] | int) -> Placed | None:
    if not isinstance(placed, int):
        return placed.get(role)
    sizes = [each.gpus for each in task.costs.scoring if each.id == role]
    if role == "rollout" and len(task.costs.decode) == 1:
        sizes = [task.costs.decode[0].tp]
    if role == "train" and task.costs.train is not None:
        sizes = [task.costs.train.gpus]
    if not sizes:
        return None
    if placed % sizes[0]:
        raise InputError(
            f"replicas of {role} do not fill the GPUs",
            got=f"--placed {placed}, replicas of {sizes[0]}",
            allowed=f"a multiple of {sizes[0]}",
            way_out=f"say how it ran: --placed {role}=REPLICASxGPUS",
        )
    return (sizes[0],) * (placed // sizes[0])


def _names(task: WorldTask, seen: TaskSeen) -> dict[str, str]:
    """Map recorded roles to the world's: by their names, trainers and rollouts by what frameworks call them.

    A single scoring role of the world is the single recorded one that is left.
    """
    names = {role: role for role in seen.stages if role in task.roles}
    names |= {role: "train" for role in seen.stages if role in _TRAINERS}
    names |= {role: "rollout" for role in seen.stages if role in _ROLLOUTS}
    left = [role for role in seen.stages if role not in names]
    scorers = [each.id for each in task.costs.scoring if each.id not in names.values()]
    if len(left) == 1 and len(scorers) == 1:
        names[left[0]] = scorers[0]
    return names


def _held(seen: TaskSeen, placed: Mapping[str, Placed] | int | None) -> int:
    """Count the GPUs a task held: of its largest role, or all roles where the user told them apart."""
    if isinstance(placed, int):
        return placed
    if placed is not None:
        return sum(map(sum, placed.values()))
    sizes = {role: max(sum(row.placed or ()) for row in rows) for role, rows in seen.stages.items() if rows}
    return max(sizes.values(), default=0)


def _fitted(base: World, task: WorldTask, seen: TaskSeen, found: Found) -> WorldTask:
    names = _names(task, seen)
    for role in seen.stages:
        if role not in names:
            found.doubts.append(
                f"{task.id}: stages of {role} were recorded, and the base world has no such role"
            )
    task = fit_work(task, seen, found)
    rows = [row for role, own in seen.stages.items() if names.get(role) == "train" for row in own]
    costs = msgspec.structs.replace(
        task.costs,
        decode=fit_rollout(base, task, seen, found),
        train=fit_training(task, rows, seen.source, found),
        scoring=fit_scoring(task, seen, names, found),
    )
    if costs.decode and costs.train is not None:
        found.keep(f"{task.id}.costs: sync_s, wake_s, weights_gib, state_gib", "no recording tells them")
    return msgspec.structs.replace(task, costs=costs)


def _origin(base: World, seen: Recorded, found: Found) -> str:
    """Say in the world file what is fitted from what, and what is not."""
    read = "; ".join(f"{path} ({kind})" for path, kind in seen.used)
    lines = [
        f"Fitted by `simulate {base.id} --fit` to {read}. In brackets what holds 9 times in 10:",
        *(f"- {figure.text()}" for figure in found.figures),
        *(
            ["Not the base's, but before scaling:", *(f"- {line}" for line in found.profiled)]
            * bool(found.profiled)
        ),
        f"Assumed, as in {base.id}:",
        *(f"- {key}: {why}" for key, why in found.assumed),
    ]
    if found.doubts:
        lines += ["To be doubted:", *(f"- {doubt}" for doubt in found.doubts)]
    return "\n".join([*lines, f"{base.id}'s own origin: {base.origin.strip()}"]) + "\n"
