"""Read observed lengths: one whole number of tokens a line."""

from __future__ import annotations

import re
from pathlib import Path

from libra_plan.errors import Where, WorkloadError
from libra_plan.profiles.document import read_text, shown

__all__ = ["read_trace", "read_trace_with_digest"]

MAX_TRACE_BYTES = 16 * 2**20
_LENGTH = re.compile(r"[1-9][0-9]{0,11}")
_HEADER = re.compile(r"[A-Za-z_][\w .-]*")
_NO_NUMBERS = frozenset({"nan", "inf", "infinity", "none", "null"})


def read_trace(path: str | Path) -> tuple[int, ...]:
    """Return the lengths of a trace file, tokens, in file order.

    Text or CSV with one column; a first line that is not a number is a header; lines that begin
    with `#` are comments.
    """
    return read_trace_with_digest(path)[0]


def read_trace_with_digest(path: str | Path) -> tuple[tuple[int, ...], str]:
    """Return the lengths of a trace file and the SHA-256 of its bytes."""
    text, digest = read_text(path, WorkloadError, MAX_TRACE_BYTES)
    lengths: list[int] = []
    header_may_follow = True
    for number, line in enumerate(text.split("\n"), start=1):
        word = line.strip()
        if not word or word.startswith("#"):
            continue
        if _LENGTH.fullmatch(word):
            lengths.append(int(word))
        elif not header_may_follow or not _HEADER.fullmatch(word) or word.lower() in _NO_NUMBERS:
            raise WorkloadError(
                "not a length",
                got=repr(word[:40]),
                allowed="one whole number of tokens ≥ 1 a line",
                where=Where(shown(path), number),
            )
        header_may_follow = False
    if not lengths:
        raise WorkloadError("empty file", allowed="one length a line", where=Where(shown(path)))
    return tuple(lengths), digest
