"""What an emitter is: a manifest in, files of one launcher out, or a list of what cannot be said.

An emitter is one module in this package with a constant `EMITTER`; nothing else lists it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Protocol

from libra_plan.errors import ManifestError
from libra_plan.planner.manifests.manifest import Manifest, RoleEntry, TaskEntry

__all__ = ["Ability", "Emitter", "check_abilities", "emitters", "find_emitter", "refusal", "unequal_nodes"]


class Ability(str, Enum):
    """Name something a manifest may ask of a launcher."""

    GPU_IDS = "exact GPUs"
    MULTI_NODE = "a role on several nodes"
    UNEQUAL_NODES = "a role with unequal numbers of GPUs on its nodes"
    SHARED_GPUS = "roles that share GPUs"
    CPU_ROLES = "roles without GPUs"


class Emitter(Protocol):
    """Turn a manifest into the files of one launcher."""

    @property
    def name(self) -> str:
        """Give the name that `emit NAME` takes."""
        ...

    @property
    def abilities(self) -> frozenset[Ability]:
        """Give what the launcher can express."""
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


def check_abilities(emitter: Emitter, manifest: Manifest) -> None:
    """Refuse a manifest that asks for what the launcher cannot express; name every place."""
    missing = [f"{where}: {need.value}" for need, where in _needs(manifest) if need not in emitter.abilities]
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
    for task in manifest.spec.tasks:
        for role in task.roles:
            for need in _role_needs(task, role):
                yield need, f"{task.id}/{role.id}"


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
