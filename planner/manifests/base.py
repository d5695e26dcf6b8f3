"""What an emitter is: a manifest in, files of one launcher out, or a list of what cannot be said.

An emitter is one module in this package with a constant `EMITTER`; nothing else lists it.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from libra_plan.errors import ManifestError
from libra_plan.planner.manifests.manifest import Manifest, RoleEntry, TaskEntry
from libra_plan.planner.manifests.shapes import unpinned

__all__ = [
    "Ability",
    "Emitter",
    "Options",
    "check_abilities",
    "configured",
    "emitters",
    "find_emitter",
    "missing_abilities",
    "options_of",
    "refusal",
    "unequal_nodes",
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


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `--option KEY=VALUE` may tell an emitter; each emitter has its own keys."""


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
        raise ManifestError("unknown launcher", got=name, allowed=", ".join(known))
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
        raise ManifestError(
            f"{emitter.name} has no option {', '.join(unknown)}",
            allowed=", ".join(f"{key} (now {value!r})" for key, value in known.items()) or "none",
        )
    if not given:
        return emitter
    changed = cast(Any, emitter)
    try:
        options = msgspec.convert({**known, **given}, type(changed.options), strict=False)
    except msgspec.ValidationError as problem:
        raise ManifestError(
            f"an option of {emitter.name} has a wrong value",
            got=problem,
            allowed=", ".join(f"{key} (now {value!r})" for key, value in known.items()),
        ) from None
    return cast(Emitter, dataclasses.replace(changed, options=options))


def missing_abilities(emitter: Emitter, manifest: Manifest) -> list[str]:
    """List what a manifest asks for and the launcher cannot express, with every place.

    A launcher that is given a task's GPUs and places roles among them expresses exact GPUs where
    any placement is the plan up to a renaming of equal GPUs.
    """
    counts = Ability.TASK_GPUS in emitter.abilities and Ability.GPU_IDS not in emitter.abilities
    known = emitter.abilities | {Ability.GPU_IDS} if counts else emitter.abilities
    missing = [f"{where}: {need.value}" for need, where in _needs(manifest) if need not in known]
    if counts:
        missing += [
            f"it chooses the GPUs of roles itself, but {reason}"
            for task in manifest.spec.tasks
            for reason in unpinned(manifest, task)
        ]
    return missing


def check_abilities(emitter: Emitter, manifest: Manifest) -> None:
    """Refuse a manifest that asks for what the launcher cannot express; name every place."""
    missing = missing_abilities(emitter, manifest)
    if missing:
        raise refusal(emitter.name, missing, "solve with arrangements and layouts that avoid it")


def refusal(name: str, reasons: list[str], way_out: str) -> ManifestError:
    """Make the error that lists what a launcher cannot express."""
    return ManifestError(
        f"{name} cannot express this manifest", got="; ".join(dict.fromkeys(reasons)), way_out=way_out
    )


def unequal_nodes(role: RoleEntry) -> bool:
    """Say whether a role has different numbers of ranks on its nodes."""
    return len({len(member.gpus) for member in role.members}) > 1


def _needs(manifest: Manifest) -> Iterator[tuple[Ability, str]]:
    seats = {f"{n.id}:{gpu.index}" for n in manifest.spec.nodes for gpu in n.gpus if gpu.card != gpu.index}
    for task in manifest.spec.tasks:
        for role in task.roles:
            for need in _role_needs(task, role):
                yield need, f"{task.id}/{role.id}"
            if any(f"{member.node}:{index}" in seats for member in role.members for index in member.gpus):
                yield Ability.SEATS, f"{task.id}/{role.id}"


def _role_needs(task: TaskEntry, role: RoleEntry) -> Iterator[Ability]:
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
