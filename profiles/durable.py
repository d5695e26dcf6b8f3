"""Write files that a crash leaves old or new, never in part; standard library only.

Training loops load this.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["sync", "write_atomically"]


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that after a crash it holds either the old or the new bytes, never a part.

    Temporary file in the same folder, fsync, rename, fsync of the folder.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
