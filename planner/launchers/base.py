"""The base of emitters: each makes the files of one launcher, or lists what it cannot express.

An emitter is one module in this package with a constant `EMITTER`; nothing else lists it.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.manifest import JointEntry, Manifest, RoleEntry, TaskEntry
from libra_plan.profiles.wording import did_you_mean

NO_COMMAND = "it has no command"
NO_ADDRESS = "has no address"

__all__ = [
    "NO_ADDRESS",
    "NO_COMMAND",
    "Ability",
    "Emitter",
    "LauncherRefusal",
    "Options",
    "TaskOptions",
    "configured",
    "emitters",
    "find_emitter",
    "missing_abilities",
    "option_text",
    "refusal",
    "unequal_text",
]


class Ability(str, Enum):
    """Something that a manifest may ask of a launcher."""

    GPU_IDS = "exact GPUs"
    TASK_GPUS = "exact GPUs of a task, among which the launcher places its roles"
    MULTI_NODE = "a role on several nodes"
    UNEQUAL_NODES = "a role with unequal numbers of GPUs on its nodes"
    SHARED_GPUS = "roles that share GPUs"
    CPU_ROLES = "roles without GPUs"
    SEATS = "a GPU that two tasks share"
    MIXED_LAYOUTS = "replicas of different layouts"
    JOINT_TURNS = "two tasks that take GPUs in turn"


_WAYS = {
    NO_COMMAND: "state `command` of these roles in workload.yaml and solve again",
    NO_ADDRESS: "solve again with --cluster FILE, a file that states `address` of every node "
    "(nodes of --gpus N have none)",
    Ability.UNEQUAL_NODES.value: "keep these tasks on one node, or on equal numbers of GPUs of each "
    "(`max_gpus` or `pinned_gpus` in workload.yaml), and solve again",
}
_PLACE = re.compile(r"[^\s:]+")  # `task` or `task/role` before a reason


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of an emitter (`--option KEY=VALUE`); each emitter has its own keys."""


class TaskOptions(Options, frozen=True, kw_only=True):
    """Options of emitters that can write some of the tasks: `tasks` has names with commas; empty: all."""

    tasks: str = ""


class LauncherRefusal(ManifestError):
    """A launcher cannot express a manifest; `causes` has a text for each cause, with all its places."""

    def __init__(self, what: str, *, causes: tuple[str, ...], allowed: str | None, way_out: str) -> None:
        self.causes = causes
        super().__init__(what, got="; ".join(causes), allowed=allowed, way_out=way_out)

    @property
    def message(self) -> str:
        """The whole text, without the word `got`, since the causes are rules of the launcher."""
        allowed = self.allowed and f"allowed: {self.allowed}"
        return "; ".join(filter(None, (f"{self.what}: {self.got}", allowed, self.way_out)))


Given = TypeVar("Given", bound=Options)


@dataclass(frozen=True)
class Emitter(ABC, Generic[Given]):
    """A launcher, what it can express, and the versions of it that the emitter was checked against."""

    name: str
    versions: tuple[str, ...]
    abilities: frozenset[Ability]
    options: Given
    way_out: ClassVar[str] = "solve with arrangements and layouts that avoid it"

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Map paths to texts; a LauncherRefusal lists everything that cannot be expressed."""
        picked = _with_tasks(manifest, getattr(self.options, "tasks", ""))
        reasons = [*missing_abilities(self, picked), *self.reasons(picked, manifest)]
        if reasons:
            raise refusal(self.name, reasons, self.way_out, self.abilities)
        return self.files(picked)

    def reasons(self, picked: Manifest, whole: Manifest) -> Iterable[str]:
        """List what the launcher cannot express of the picked tasks, beyond its abilities."""
        return ()

    @abstractmethod
    def files(self, picked: Manifest) -> dict[str, str]:
        """Write the files of the picked tasks, which the launcher can express."""


def _with_tasks(manifest: Manifest, tasks: str) -> Manifest:
    """Keep the tasks named with commas between; all where none is named."""
    wanted = [name for name in tasks.split(",") if name]
    known = [task.id for task in manifest.spec.tasks]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise ManifestError("the manifest has no such task", got=", ".join(unknown), allowed=", ".join(known))
    if not wanted:
        return manifest
    kept = tuple(task for task in manifest.spec.tasks if task.id in wanted)
    return msgspec.structs.replace(manifest, spec=msgspec.structs.replace(manifest.spec, tasks=kept))


def emitters() -> dict[str, Emitter[Any]]:
    """Find the emitters of this package by name, sorted."""
    package = __package__ or __name__.rpartition(".")[0]
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    found = [
        getattr(importlib.import_module(f"{package}.{module.name}"), "EMITTER", None) for module in modules
    ]
    return {one.name: one for one in sorted(filter(None, found), key=lambda one: one.name)}


def find_emitter(name: str) -> Emitter[Any]:
    """Return the emitter of a launcher."""
    known = emitters()
    if name not in known:
        raise ManifestError(
            "unknown launcher",
            got=name,
            allowed=", ".join(known),
            way_out=did_you_mean(name, known) or "emit --list says what each can express",
        )
    return known[name]


def configured(emitter: Emitter[Given], given: Mapping[str, str]) -> Emitter[Given]:
    """Set options of an emitter from `key=value` texts."""
    known = msgspec.structs.asdict(emitter.options)
    unknown = [key for key in given if key not in known]
    if unknown:
        now = [f"{key} (now {option_text(value) or 'empty'})" for key, value in known.items()]
        raise ManifestError(
            f"{emitter.name} has no option {', '.join(unknown)}",
            allowed=", ".join(now) or "none",
            way_out=did_you_mean(unknown[0], known),
        )
    values = {key: _value(emitter.name, key, known[key], text) for key, text in given.items()}
    try:
        options = msgspec.convert({**known, **values}, type(emitter.options), strict=False)
    except msgspec.ValidationError as problem:
        raise _wrong_value(emitter.name, known, given, str(problem)) from None
    return dataclasses.replace(emitter, options=options)


def option_text(value: object) -> str:
    """Write an option's value as `--option KEY=VALUE` takes it."""
    if isinstance(value, tuple):
        return " ".join(value)
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wrong_value(
    launcher: str, known: Mapping[str, object], given: Mapping[str, str], problem: str
) -> ManifestError:
    """Name the option whose value was refused, what was given, and what it takes."""
    rule, _, at = problem.partition(" - at `$.")
    key = re.split(r"[`.\[]", at)[0]
    if key not in given:
        return ManifestError(f"an option of {launcher} has a wrong value", got=problem)
    words = {bool: "true or false", int: "a whole number", float: "a number"}
    taken = words.get(type(known[key]), rule.removeprefix("Expected ").partition(", got ")[0])
    return ManifestError(
        f"option {key} of {launcher} has a wrong value",
        got=given[key] or "nothing",
        allowed=f"{taken} (now {option_text(known[key]) or 'empty'})",
    )


def _value(launcher: str, key: str, present: object, text: str) -> object:
    """Read words (as a shell would) and `NAME=VALUE,...` where an option takes several values."""
    if isinstance(present, tuple):
        try:
            return shlex.split(text)
        except ValueError as problem:
            raise ManifestError(f"option {key} of {launcher} takes words", got=problem) from None
    if not isinstance(present, dict):
        return text
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise ManifestError(
            f"option {key} of {launcher} takes pairs", got=text, allowed=f"{key}=NAME=VALUE,NAME=VALUE"
        )
    return {name: value for name, _, value in pairs}


def missing_abilities(emitter: Emitter[Any], manifest: Manifest) -> list[str]:
    """List what a manifest asks for and the launcher cannot express, with every place.

    A launcher that is given a task's GPUs and places roles among them expresses exact GPUs where
    any placement is the plan up to a renaming of equal GPUs.
    """
    counts = Ability.TASK_GPUS in emitter.abilities and Ability.GPU_IDS not in emitter.abilities
    known = emitter.abilities | {Ability.GPU_IDS} if counts else emitter.abilities
    seats = {(n.id, gpu.index) for n in manifest.spec.nodes for gpu in n.gpus if gpu.card != gpu.index}
    together = manifest.spec.together
    missing = [
        f"{where}: {text}"
        for task in manifest.spec.tasks
        for need, where, text in _needs(task, together.get(task.id), seats)
        if need not in known
    ]
    if counts:
        for task in manifest.spec.tasks:
            if not any(role.has_unequal_nodes for role in task.roles):  # reported above, in other words
                reasons = _where_placement_matters(manifest, task)
                missing += [f"it chooses the GPUs of roles itself, but {reason}" for reason in reasons]
    return missing


def _needs(
    task: TaskEntry, joint: JointEntry | None, seats: set[tuple[str, int]]
) -> Iterator[tuple[Ability, str, str]]:
    """List the abilities that a task needs, each with its place and a text for people."""
    if joint is not None:
        yield Ability.JOINT_TURNS, task.id, Ability.JOINT_TURNS.value
    for role in task.roles:
        asked = {
            Ability.CPU_ROLES: not role.members,
            Ability.GPU_IDS: bool(role.members),
            Ability.MULTI_NODE: len(role.members) > 1,
            Ability.UNEQUAL_NODES: role.has_unequal_nodes,
            Ability.SHARED_GPUS: role.share_group is not None,
            Ability.MIXED_LAYOUTS: bool(role.mix),
            Ability.SEATS: not seats.isdisjoint(role.ranks),
        }
        for need, is_asked in asked.items():
            if is_asked:
                text = unequal_text(role) if need is Ability.UNEQUAL_NODES else need.value
                yield need, f"{task.id}/{role.id}", text


def _where_placement_matters(manifest: Manifest, task: TaskEntry) -> Iterator[str]:
    """List why a role needs particular GPUs of the task, so that counts are not enough.

    Counting launchers see just the task's GPUs and choose among them. That is the plan up to a
    renaming of equal GPUs if all are of one class and either lie on one node, or every role takes
    all the task's GPUs of its nodes and the nodes have equally many.
    """
    nodes = manifest.spec.nodes_of(task)
    taken = {node.id: set(task.gpus_on(node.id)) for node in nodes}
    classes = {gpu.gpu_class for node in nodes for gpu in node.gpus if gpu.index in taken[node.id]}
    if len(classes) > 1:
        yield f"{task.id} has GPUs of several classes ({', '.join(sorted(classes))})"
    if len(nodes) < 2:
        return
    if len({len(gpus) for gpus in taken.values()}) > 1:
        counts = ", ".join(f"{len(gpus)} on {node}" for node, gpus in taken.items())
        yield f"{task.id} has unequal numbers of GPUs on its nodes ({counts})"
        return
    for role in task.roles:
        for member in role.members:
            if set(member.gpus) != taken[member.node]:
                yield (
                    f"{task.id}/{role.id} takes {len(member.gpus)} of the task's "
                    f"{len(taken[member.node])} GPUs on {member.node}, and the task has several nodes"
                )


def unequal_text(role: RoleEntry) -> str:
    """Write that a role has unequal numbers of GPUs on its nodes, and which: one text, so it is told once."""
    counts = ", ".join(f"{len(member.gpus)} on {member.node}" for member in role.members)
    return f"{Ability.UNEQUAL_NODES.value} ({counts})"


def refusal(
    name: str, reasons: Iterable[str], way_out: str, abilities: frozenset[Ability] | None = None
) -> LauncherRefusal:
    """Make the error that lists what a launcher cannot express, each cause once with all its places."""
    reasons = list(dict.fromkeys(reasons))
    places: dict[str, list[str]] = {}
    for reason in reasons:
        place, colon, cause = reason.partition(": ")
        if colon and _PLACE.fullmatch(place):
            places.setdefault(cause, []).append(place)
        else:
            places.setdefault(reason, [])
    causes = tuple(f"{', '.join(at)}: {cause}" if at else cause for cause, at in places.items())
    ways = [way for lack, way in _WAYS.items() if any(lack in reason for reason in reasons)]
    if not all(any(lack in reason for lack in _WAYS) for reason in reasons):
        ways.append(way_out)
    known = None if abilities is None else ", ".join(each.value for each in Ability if each in abilities)
    what = f"{name} cannot express this manifest"
    return LauncherRefusal(what, causes=causes, allowed=known, way_out="; ".join(ways))
