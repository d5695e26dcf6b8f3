"""Find in a role's log the line that says why the role ended."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["telling_line"]

_TAIL_BYTES = 16 * 1024
_WIDTH = 200  # characters: a message is one line
_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b(: .*)?")  # as Python ends a traceback
_OF_TORCHRUN = "ChildFailedError"  # says only that a rank failed


def telling_line(path: Path) -> str:
    """Give the last line of a log that names an error, else its last line with any word; empty when none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))]
    errors = [line for line in lines if _OF_TORCHRUN not in line and _named(line)]
    return (errors or lines or [""])[-1][:_WIDTH]


def _named(line: str) -> bool:
    """Say whether a line is an error's; torchrun puts `[rank0]: ` before each line of a rank."""
    return _ERROR.fullmatch(re.sub(r"^\[\w+\]:\s*", "", line)) is not None
