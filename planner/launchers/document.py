"""Write a manifest as canonical JSON, JSON or YAML, and read it back strictly."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path

import msgspec
import rfc8785

from libra_plan.errors import ManifestError, Where
from libra_plan.models.parallelism import Layout
from libra_plan.models.topology import GpuId
from libra_plan.planner.launchers.manifest import API_VERSION, KIND, Manifest, RoleEntry
from libra_plan.planner.launchers.shell import to_yaml
from libra_plan.planner.problem import IncumbentRole, IncumbentTask, IncumbentWorkers
from libra_plan.profiles.document import Document, decode, parse_document, read_text, shown

__all__ = [
    "manifest_digest",
    "manifest_to_json",
    "manifest_to_yaml",
    "placements_of",
    "read_manifest",
    "seal",
]

_LARGEST_BYTES = 64 * 2**20


def manifest_digest(manifest: Manifest) -> str:
    """Compute `sha256:…` over the RFC 8785 JSON of everything but `metadata.digest`."""
    document = msgspec.to_builtins(manifest)
    del document["metadata"]["digest"]
    for path, value in _numbers(document, ""):
        if not math.isfinite(value):
            raise ManifestError(
                "a number in the manifest is not finite",
                got=value,
                allowed="finite numbers; null where not known",
                way_out="check what the plan was made from",
                where=Where("manifest", key=path),
            )
    try:
        canonical = rfc8785.dumps(document)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as problem:
        raise ManifestError(
            "the manifest holds text or a number that JSON cannot carry",
            got=problem,
            allowed="valid Unicode; whole numbers below 2^53",
            way_out="check the names, commands and folders in the workload",
        ) from None
    return f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def seal(manifest: Manifest) -> Manifest:
    """Return a manifest with its correct digest."""
    metadata = msgspec.structs.replace(manifest.metadata, digest=manifest_digest(manifest))
    return msgspec.structs.replace(manifest, metadata=metadata)


def manifest_to_json(manifest: Manifest) -> str:
    """Write a manifest as indented JSON, keys in schema order."""
    return json.dumps(msgspec.to_builtins(manifest), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def manifest_to_yaml(manifest: Manifest) -> str:
    """Write a manifest as YAML; text that could pass for a number or a word is quoted."""
    return to_yaml((), msgspec.to_builtins(manifest))


def read_manifest(path: Path) -> Manifest:
    """Read a manifest (JSON by its suffix, else YAML) and check its version, schema and digest."""
    text, sha256 = read_text(path, ManifestError, _LARGEST_BYTES)
    document = parse_document(text, shown(path), ManifestError, sha256=sha256)
    _check_version(document)
    manifest = decode(document, Manifest, ManifestError)
    expected = manifest_digest(manifest)
    if manifest.metadata.digest != expected:
        raise ManifestError(
            "the manifest was changed after it was written: its digest does not match its content",
            got=manifest.metadata.digest,
            way_out="do not edit a manifest: restore the file, or move it away and solve again",
            where=document.where("metadata.digest"),
        )
    return manifest


def _check_version(document: Document) -> None:
    """Stop at an unknown version or kind before anything else is read from the file."""
    for key, allowed in (("apiVersion", API_VERSION), ("kind", KIND)):
        got = document.data.get(key) if isinstance(document.data, dict) else None
        if got != allowed:
            raise ManifestError(
                "this is not a manifest that this version reads: "
                + (f"{key} is missing" if got is None else f"unknown {key}"),
                got="nothing" if got is None else repr(got),
                allowed=allowed,
                way_out="read it with the version that wrote it, or solve again",
                where=document.where(key),
            )


def _numbers(value: object, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, float):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _numbers(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _numbers(item, f"{path}[{index}]")


def placements_of(manifest: Manifest) -> tuple[IncumbentTask, ...]:
    """List the placement of every task of a manifest: layouts, the GPUs of replicas, nodes of workers."""
    return tuple(
        IncumbentTask(
            task.id,
            tuple(_held(role) for role in task.roles if role.members),
            tuple(
                IncumbentWorkers(role.id, share.node, share.workers)
                for role in task.roles
                for share in role.cpu
            ),
        )
        for task in manifest.spec.tasks
    )


def _held(role: RoleEntry) -> IncumbentRole:
    replicas = tuple(tuple(_gpu_id(gpu) for gpu in replica) for replica in role.replicas)
    group = role.share_group or role.id
    if role.mix:
        mix = tuple(Layout.of(kind) for kind in role.mix)
        largest = max(mix, key=lambda layout: layout.gpus_per_replica)
        return IncumbentRole(role.id, largest, replicas, group, mix)
    assert role.layout is not None
    layout = Layout.of(role.layout)
    return IncumbentRole(role.id, layout, replicas, group)


def _gpu_id(text: str) -> GpuId:
    node, _, index = text.rpartition(":")
    return GpuId(node, int(index))
