"""Count things in words: 1 row, 2 rows, no row. Nothing heavy is imported here."""

from __future__ import annotations

__all__ = ["counted"]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun; `plural` where it is not the noun with an s (or -ies for -y).

    Of several words (`usable GPU`) the last is inflected.
    """
    if number == 1:
        return f"1 {noun}"
    if plural is None:
        plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2:-1] not in "aeiou" else f"{noun}s"
    return f"{number} {plural}"
