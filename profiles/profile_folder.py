"""Write a profile folder: `profile.yaml` and the points it pins by their SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml

from libra_plan.profiles import scalars
from libra_plan.profiles.points import points_text
from libra_plan.profiles.schema import Point, ProfileFile

__all__ = ["folder_texts", "sha256_of", "write_folder", "yaml_text"]


def sha256_of(content: bytes) -> str:
    """Return the SHA-256 of bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def folder_texts(profile: ProfileFile, points: Sequence[Point], header: str = "") -> dict[str, str]:
    """Make the text of both files, by their names; `points_sha256` is filled in here."""
    text = points_text(points)
    provenance = msgspec.structs.replace(profile.provenance, points_sha256=sha256_of(text.encode()))
    pinned = msgspec.structs.replace(profile, provenance=provenance)
    return {"profile.yaml": yaml_text(pinned, header), profile.points: text}


def write_folder(target: Path, profile: ProfileFile, points: Sequence[Point], header: str = "") -> Path:
    """Write `target/<profile id>/` and return it."""
    folder = target / profile.id
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in folder_texts(profile, points, header).items():
        (folder / name).write_bytes(text.encode())
    return folder


def yaml_text(value: msgspec.Struct, header: str = "") -> str:
    """Write a struct in field order, without keys whose value is unknown or empty."""
    plain = _without_blanks(msgspec.to_builtins(value))
    return header + yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Quotes texts that our reader, which knows YAML 1.2, would take for something else."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    try:
        plain = scalars.plain(text)
    except (scalars.NotFiniteError, scalars.TooLargeError):
        plain = None
    style = "|" if "\n" in text else None if plain == text else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _without_blanks(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_blanks(item) for key, item in value.items() if item not in (None, {}, (), [])}
    if isinstance(value, (list, tuple)):
        return [_without_blanks(item) for item in value]
    return value
