"""Fit a world: from a base world and what recordings hold, with the origin of every figure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.errors import InputError, WorkloadError, writing
from libra_plan.models.fit import FittedProfile
from libra_plan.notes import Notes, log_note
from libra_plan.planner.simulate.fit.evidence import (
    ROLLOUTS,
    TRAINERS,
    FitFindings,
    FittedFigure,
    Recorded,
    ReplicaSizes,
    TaskSeen,
)
from libra_plan.planner.simulate.fit.lengths import fit_work
from libra_plan.planner.simulate.fit.profiled import with_profiles
from libra_plan.planner.simulate.fit.rollouts import fit_rollout
from libra_plan.planner.simulate.fit.site import fit_error, fit_failures, fit_site, fit_switching
from libra_plan.planner.simulate.fit.sources import read_recordings
from libra_plan.planner.simulate.fit.trainers import fit_scoring, fit_training
from libra_plan.planner.simulate.world import World, WorldTask, find_worlds, read_world
from libra_plan.planner.telemetry.readers import ReaderFacts, paths_of
from libra_plan.profiles.profile_folder import yaml_text

__all__ = ["FittedWorld", "fit_recorded", "fit_world"]

Placements = Mapping[str, ReplicaSizes] | int
"""GPUs of each replica of each role; a number: every role is on all of so many GPUs in turn."""
_SHOWN_LEFT_OUT = 5
_PLACED = re.compile(r"([A-Za-z][\w.-]*)=(\d{1,6})x(\d{1,4})")


@dataclass(frozen=True)
class FittedWorld:
    """A world that was fitted to recordings.

    Attributes
    ----------
    world
        The world itself.
    base
        The id of the world whose figures hold where the recordings tell nothing.
    figures
        What was fitted: value, interval, samples and how.
    assumed
        What stays the base's, and why.
    doubts
        What a reader should doubt.
    used
        What each recording was taken for.
    left_out
        Lines of recordings that could not be used.

    Examples
    --------
    >>> import dataclasses
    >>> import libra_plan as lp
    >>> [each.name for each in dataclasses.fields(lp.FittedWorld)][:3]
    ['world', 'base', 'figures']
    """

    world: World
    base: str
    figures: tuple[FittedFigure, ...]
    assumed: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]
    used: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]

    def yaml(self) -> str:
        """Return the world as the text of a world file."""
        return yaml_text(self.world)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "base": self.base,
            "world": msgspec.to_builtins(self.world),
            "recordings": [{"path": path, "kind": kind} for path, kind in self.used],
            "fitted": [asdict(figure) for figure in self.figures],
            "assumed": [{"figure": key, "why": why} for key, why in self.assumed],
            "doubts": list(self.doubts),
            "left_out": list(self.left_out),
        }


def fit_world(
    base: str | Path | World | Sequence[str | Path | World],
    recordings: str | Path | Sequence[str | Path],
    *,
    placed: str | int | Mapping[str, ReplicaSizes] | None = None,
    profiles: Sequence[str] = (),
    task: str = "",
    samples: int | None = None,
    hours: float | None = None,
    out: Path | None = None,
    notes: Notes = log_note,
) -> FittedWorld:
    """Make a world of your own recordings, on top of a base world.

    What the recordings hold is fitted; everything else stays the base's, and is listed with the reason.

    Parameters
    ----------
    base
        A world, its file, or the id of a shipped one.
    recordings
        A file or folder, or several: counters, metrics of frameworks, trajectories, a monitor's recording
        and others (docs/simulate.md lists them). What a file is, is told by what is in it.
    placed
        Where roles ran, for recordings that do not tell: the GPUs that all roles share (`64`), or replicas
        of GPUs by role (`rollout=16x2,train=4x8`).
    profiles
        Measured profiles whose costs stand in for the base's before they are scaled.
    task
        The task, for logs that do not name it.
    samples
        Samples of a step, for logs that do not say.
    hours
        Hours of the world, in place of the base's.
    out
        A file to write the world to; its name becomes the world's id.
    notes
        Called with each line that the user should read.

    Returns
    -------
    FittedWorld
        The world, and where each of its figures is from.

    Raises
    ------
    InputError
        A recording cannot be read, or `placed` is none.
    WorkloadError
        The recordings support no figure of a task.

    Examples
    --------
    >>> import libra_plan as lp
    >>> _ = lp.monitor("simulated:2", for_s=0.0, out="telemetry")
    >>> lp.fit_world("examples/fit/base.yaml", "telemetry")
    Traceback (most recent call last):
        ...
    libra_plan.errors.WorkloadError: the recording cannot support a fit; ...
    """
    worlds = find_worlds([base] if isinstance(base, (str, Path, World)) else base, hours)
    if len(worlds) != 1:
        raise InputError(
            "a fit begins with one base world",
            got=", ".join(world.id for world in worlds),
            allowed="one world, whose figures hold where the recordings tell nothing",
        )
    places = _places(placed) if isinstance(placed, str) else placed
    gpus = places if places is None or isinstance(places, int) else sum(map(sum, places.values()))
    seen = read_recordings(paths_of(recordings), ReaderFacts(task, gpus, samples))
    name = f"{worlds[0].id}-fitted" if out is None else out.stem
    fit = fit_recorded(worlds[0], seen, places, name, [_fitted_profile(each) for each in profiles])
    if out is not None:
        with writing(out):
            out.write_text(fit.yaml(), encoding="utf-8")
        read_world(out)  # refuses an invalid world, in case base and recording do not go together
    _tell(fit, out, notes)
    return fit


def _tell(fit: FittedWorld, out: Path | None, notes: Notes) -> None:
    for path, kind in fit.used:
        notes(f"read {path}: {kind}")
    for key, why in fit.assumed:
        notes(f"assumed, as in {fit.base}: {key}: {why}")
    for doubt in fit.doubts:
        notes(f"warning: {doubt}")
    for line in fit.left_out[:_SHOWN_LEFT_OUT]:
        notes(f"left out: {line}")
    if len(fit.left_out) > _SHOWN_LEFT_OUT:
        notes(f"left out: {len(fit.left_out) - _SHOWN_LEFT_OUT} more")
    if out is not None:
        notes(f"wrote {out}")


def _fitted_profile(name: str) -> FittedProfile:
    from libra_plan.models.fits import cached_fit
    from libra_plan.profiles.catalog import find_profile, load_profile

    return cached_fit(load_profile(find_profile(name)))


def _places(text: str) -> Placements:
    """Read `64`, or `rollout=16x2,train=4x8`: replicas × GPUs of each."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    found = {}
    for part in text.split(","):
        match = _PLACED.fullmatch(part.strip())
        if match is None or int(match[2]) < 1 or int(match[3]) < 1:
            raise InputError(
                "not a placement",
                got=part,
                allowed="the GPUs that all roles share (64), or ROLE=REPLICASxGPUS with commas",
                way_out="for example --placed rollout=16x2,train=4x8",
            )
        found[match[1]] = (int(match[3]),) * int(match[2])
    return found


def fit_recorded(
    base: World,
    seen: Recorded,
    placed: Placements | None,
    name: str,
    profiles: Sequence[FittedProfile] = (),
) -> FittedWorld:
    """Fit a world to recordings that are read; `placed` says where roles ran, for those that do not tell."""
    found = FitFindings()
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
    return FittedWorld(
        world,
        base.id,
        tuple(found.figures),
        tuple(found.assumed),
        tuple(found.doubts),
        tuple(seen.used),
        tuple(seen.left_out),
    )


def _on_profiles(base: World, profiles: Sequence[FittedProfile], found: FitFindings) -> World:
    tasks = []
    for task in base.tasks:
        new, said = with_profiles(task, profiles)
        tasks.append(new)
        found.profiled += said
    return msgspec.structs.replace(base, tasks=tuple(tasks))


def _refuse(base: World, seen: Recorded, found: FitFindings) -> None:
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
    """Return observations by the base's tasks; a recording that names no task belongs to the only one."""
    known = base.task_of
    strangers = [name for name in seen.tasks if name and name not in known]
    if len(base.tasks) == 1:
        named = [name for name in seen.tasks if name]
        if len(named) > 1:
            raise InputError(
                "recordings of several tasks, and the base world has one",
                got=", ".join(named), allowed=base.tasks[0].id, way_out="give those of one task",
            )  # fmt: skip
        whole = TaskSeen()
        for part in seen.tasks.values():
            whole.join(part)
        return {base.tasks[0].id: whole} if seen.tasks else {}
    if strangers or "" in seen.tasks:
        raise InputError(
            "recordings of a task that the base world does not have",
            got=", ".join(strangers) or "no name of a task",
            allowed=", ".join(known),
            way_out="name it with --task, or rename the base's tasks",
        )
    return seen.tasks


def _placed(task: WorldTask, seen: TaskSeen, placed: Placements | None) -> TaskSeen:
    """Fill in the GPUs that the user stated, for stages that do not state them."""
    if placed is None:
        return seen
    names = _names(task, seen)
    stages = {}
    for role, rows in seen.stages.items():
        own = names.get(role, role)
        sizes = _sizes(task, own, placed)
        stages[role] = [replace(row, placed=row.placed or sizes) for row in rows]
    return replace(seen, stages=stages)


def _sizes(task: WorldTask, role: str, placed: Placements) -> ReplicaSizes | None:
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
    names |= {role: "train" for role in seen.stages if role in TRAINERS}
    names |= {role: "rollout" for role in seen.stages if role in ROLLOUTS}
    left = [role for role in seen.stages if role not in names]
    scorers = [each.id for each in task.costs.scoring if each.id not in names.values()]
    if len(left) == 1 and len(scorers) == 1:
        names[left[0]] = scorers[0]
    return names


def _held(seen: TaskSeen, placed: Placements | None) -> int:
    """Count the GPUs a task held: of its largest role, or all roles where the user told them apart."""
    if isinstance(placed, int):
        return placed
    if placed is not None:
        return sum(map(sum, placed.values()))
    sizes = {role: max(sum(row.placed or ()) for row in rows) for role, rows in seen.stages.items() if rows}
    return max(sizes.values(), default=0)


def _fitted(base: World, task: WorldTask, seen: TaskSeen, found: FitFindings) -> WorldTask:
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


def _origin(base: World, seen: Recorded, found: FitFindings) -> str:
    """Return the text of the world file that lists what is fitted from what, and what is not."""
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
