"""Where a user's own files lie."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ["home_folder"]


def home_folder(environment: Mapping[str, str]) -> Path:
    """Return `$HOME`, else what the machine knows; `/` for an unknown user, as containers have it."""
    try:
        return Path(environment.get("HOME") or "~").expanduser()
    except RuntimeError:
        return Path("/")
