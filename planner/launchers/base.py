"""What an emitter is: a manifest in, files of one launcher out, or a list of what cannot be said.

An emitter is one module in this package with a constant `EMITTER`; nothing else lists it.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import pkgutil
import re
import shlex
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.manifest import Manifest, RoleEntry
from libra_plan.planner.launchers.shapes import unpinned

NO_COMMAND = "it has no command"
NO_ADDRESS = "has no address"
_ENGINE = "one engine that serves several tasks"
_WAYS = {
    NO_COMMAND: "state `command` of these roles in workload.yaml and solve again",
    NO_ADDRESS: "solve again with --cluster FILE, a file that states `address` of every node "
    "(nodes of --gpus N have none)",
    _ENGINE: "remove the `sharing` entry of these tasks from workload.yaml and solve again",
}
_EQUAL = (
    "keep these tasks on one node, or on equal numbers of GPUs of each (`max_gpus` or `pinned_gpus` in "
    "workload.yaml), and solve again"
)
_PLACE = re.compile(r"[^\s:]+")  # `task` or `task/role` before a reason

__all__ = [
    "NO_ADDRESS",
    "NO_COMMAND",
    "Ability",
    "Emitter",
    "LauncherRefusal",
    "Options",
    "check_abilities",
    "configured",
    "emitters",
    "find_emitter",
    "missing_abilities",
    "option_text",
    "options_of",
    "refusal",
    "unequal_nodes",
    "unequal_text",
]


class Ability(str, Enum):
    """Name something a manifest may ask of a launcher."""

    GPU_IDS = "exact GPUs"
    TASK_GPUS = "exact GPUs of a task, among which the launcher places its roles"
    MULTI_NODE = "a role on several nodes"
    UNEQUAL_NODES = "a role with unequal numbers of GPUs on its nodes"
    SHARED_GPUS = "roles that share GPUs"
    CPU_ROLES = "roles without GPUs"
    SEATS = "a GPU that two tasks share"
    MIXED_LAYOUTS = "replicas of different layouts"
    JOINT_TURNS = "two tasks that take GPUs in turn"
    JOINT_ENGINE = _ENGINE


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `--option KEY=VALUE` may tell an emitter; each emitter has its own keys."""


class LauncherRefusal(ManifestError):
    """A launcher cannot express a manifest; `causes` has a text for each cause, with all its places."""

    def __init__(self, what: str, *, causes: tuple[str, ...], allowed: str | None, way_out: str) -> None:
        self.causes = causes
        super().__init__(what, got="; ".join(causes), allowed=allowed, way_out=way_out)

    @property
    def message(self) -> str:
        """Give what stands in the way, which may be a rule of the launcher, and so is nothing one `got`."""
        allowed = self.allowed and f"allowed: {self.allowed}"
        return "; ".join(filter(None, (f"{self.what}: {self.got}", allowed, self.way_out)))


class Emitter(Protocol):
    """Turn a manifest into the files of one launcher.

    An emitter that takes options is a dataclass with a field `options`, a subclass of `Options`.
    """

    @property
    def name(self) -> str:
        """Give the name that `emit NAME` takes."""
        ...

    @property
    def abilities(self) -> frozenset[Ability]:
        """Give what the launcher can express."""
        ...

    @property
    def versions(self) -> tuple[str, ...]:
        """Give the versions of the launcher that the emitter was checked against."""
        ...

    def emit(self, manifest: Manifest) -> dict[str, str]:
        """Map paths to texts; raise a ManifestError that lists what cannot be expressed."""
        ...


def emitters() -> dict[str, Emitter]:
    """Find the emitters of this package by name, sorted."""
    package = __package__ or __name__.rpartition(".")[0]
    found: dict[str, Emitter] = {}
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        emitter = getattr(importlib.import_module(f"{package}.{module.name}"), "EMITTER", None)
        if emitter is not None:
            found[emitter.name] = emitter
    return dict(sorted(found.items()))


def find_emitter(name: str) -> Emitter:
    """Get an emitter by name."""
    known = emitters()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise ManifestError(
            "unknown launcher",
            got=name,
            allowed=", ".join(known),
            way_out=f"did you mean `{near[0]}`?" if near else "emit --list says what each can express",
        )
    return known[name]


def options_of(emitter: Emitter) -> dict[str, object]:
    """Give the options of an emitter and their present values."""
    options = getattr(emitter, "options", None)
    return msgspec.structs.asdict(options) if isinstance(options, Options) else {}


def configured(emitter: Emitter, given: Mapping[str, str]) -> Emitter:
    """Set options of an emitter from `key=value` texts."""
    known = options_of(emitter)
    unknown = [key for key in given if key not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], list(known), n=1)
        raise ManifestError(
            f"{emitter.name} has no option {', '.join(unknown)}",
            allowed=", ".join(map(_now, known.items())) or "none",
            way_out=f"did you mean `{near[0]}`?" if near else None,
        )
    if not given:
        return emitter
    changed = cast(Any, emitter)
    values = {key: _value(emitter, key, known[key], text) for key, text in given.items()}
    try:
        options = msgspec.convert({**known, **values}, type(changed.options), strict=False)
    except msgspec.ValidationError as problem:
        raise _wrong_value(emitter, known, given, str(problem)) from None
    return cast(Emitter, dataclasses.replace(changed, options=options))


def option_text(value: object) -> str:
    """Write an option's value as `--option KEY=VALUE` takes it."""
    if isinstance(value, tuple):
        return " ".join(value)
    if isinstance(value, dict):
        return ",".join(f"{name}={each}" for name, each in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _now(option: tuple[str, object]) -> str:
    key, value = option
    return f"{key} (now {option_text(value) or 'empty'})"


def _wrong_value(
    emitter: Emitter, known: Mapping[str, object], given: Mapping[str, str], problem: str
) -> ManifestError:
    """Name the option whose value was refused, what was given, and what it takes."""
    rule, _, at = problem.partition(" - at `$.")
    key = re.split(r"[`.\[]", at)[0]
    if key not in given:
        return ManifestError(f"an option of {emitter.name} has a wrong value", got=problem)
    words = {bool: "true or false", int: "a whole number", float: "a number"}
    taken = words.get(type(known[key]), rule.removeprefix("Expected ").partition(", got ")[0])
    return ManifestError(
        f"option {key} of {emitter.name} has a wrong value",
        got=given[key] or "nothing",
        allowed=f"{taken} (now {option_text(known[key]) or 'empty'})",
    )


def _value(emitter: Emitter, key: str, present: object, text: str) -> object:
    """Read words (as a shell would) and `NAME=VALUE,...` where an option takes several values."""
    if isinstance(present, tuple):
        try:
            return shlex.split(text)
        except ValueError as problem:
            raise ManifestError(f"option {key} of {emitter.name} takes words", got=problem) from None
    if not isinstance(present, dict):
        return text
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise ManifestError(
            f"option {key} of {emitter.name} takes pairs", got=text, allowed=f"{key}=NAME=VALUE,NAME=VALUE"
        )
    return {name: value for name, _, value in pairs}


def missing_abilities(emitter: Emitter, manifest: Manifest) -> list[str]:
    """List what a manifest asks for and the launcher cannot express, with every place.

    A launcher that is given a task's GPUs and places roles among them expresses exact GPUs where
    any placement is the plan up to a renaming of equal GPUs.
    """
    counts = Ability.TASK_GPUS in emitter.abilities and Ability.GPU_IDS not in emitter.abilities
    known = emitter.abilities | {Ability.GPU_IDS} if counts else emitter.abilities
    needs = [(need, where) for need, where in _needs(manifest) if need not in known]
    unequal = {
        f"{task.id}/{role.id}": unequal_text(role) for task in manifest.spec.tasks for role in task.roles
    }
    missing = [
        f"{where}: {unequal[where] if need is Ability.UNEQUAL_NODES else need.value}" for need, where in needs
    ]
    told = {where.partition("/")[0] for need, where in needs if need is Ability.UNEQUAL_NODES}
    if counts:
        missing += [
            f"it chooses the GPUs of roles itself, but {reason}"
            for task in manifest.spec.tasks
            if task.id not in told  # unequal nodes again, in other words
            for reason in unpinned(manifest, task)
        ]
    return missing


def check_abilities(emitter: Emitter, manifest: Manifest) -> None:
    """Refuse a manifest that asks for what the launcher cannot express; name every place."""
    missing = missing_abilities(emitter, manifest)
    if missing:
        way_out = "solve with arrangements and layouts that avoid it"
        raise refusal(emitter.name, missing, way_out, emitter.abilities)


def refusal(
    name: str, reasons: list[str], way_out: str, abilities: frozenset[Ability] | None = None
) -> LauncherRefusal:
    """Make the error that lists what a launcher cannot express, each cause once with all its places.

    `abilities`, where they are what matters, say what it can.
    """
    places: dict[str, list[str]] = {}
    for reason in dict.fromkeys(reasons):
        place, colon, cause = reason.partition(": ")
        if colon and _PLACE.fullmatch(place):
            places.setdefault(cause, []).append(place)
        else:
            places.setdefault(reason, [])
    causes = tuple(f"{', '.join(at)}: {cause}" if at else cause for cause, at in places.items())
    helps = {**_WAYS, Ability.UNEQUAL_NODES.value: _EQUAL}
    ways = [way for lack, way in helps.items() if any(lack in reason for reason in reasons)]
    if not all(any(lack in reason for lack in helps) for reason in reasons):
        ways.append(way_out)
    known = None if abilities is None else ", ".join(each.value for each in Ability if each in abilities)
    what = f"{name} cannot express this manifest"
    return LauncherRefusal(what, causes=causes, allowed=known, way_out="; ".join(ways))


def unequal_nodes(role: RoleEntry) -> bool:
    """Say whether a role has different numbers of ranks on its nodes."""
    return len({len(member.gpus) for member in role.members}) > 1


def unequal_text(role: RoleEntry) -> str:
    """Say that a role has unequal numbers of GPUs on its nodes, and which: one text, so it is told once."""
    counts = ", ".join(f"{len(member.gpus)} on {member.node}" for member in role.members)
    return f"{Ability.UNEQUAL_NODES.value} ({counts})"


def _needs(manifest: Manifest) -> Iterator[tuple[Ability, str]]:
    seats = {f"{n.id}:{gpu.index}" for n in manifest.spec.nodes for gpu in n.gpus if gpu.card != gpu.index}
    for task in manifest.spec.tasks:
        entry = manifest.spec.together.get(task.id)
        if entry is not None:
            yield Ability.JOINT_TURNS if entry.kind == "turns" else Ability.JOINT_ENGINE, task.id
        for role in task.roles:
            for need in _role_needs(role):
                yield need, f"{task.id}/{role.id}"
            if any(f"{member.node}:{index}" in seats for member in role.members for index in member.gpus):
                yield Ability.SEATS, f"{task.id}/{role.id}"


def _role_needs(role: RoleEntry) -> Iterator[Ability]:
    if not role.members:
        yield Ability.CPU_ROLES
        return
    yield Ability.GPU_IDS
    if len(role.members) > 1:
        yield Ability.MULTI_NODE
    if unequal_nodes(role):
        yield Ability.UNEQUAL_NODES
    if role.share_group is not None:
        yield Ability.SHARED_GPUS
    if role.mix:
        yield Ability.MIXED_LAYOUTS
