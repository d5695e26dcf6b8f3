"""A key of a file that is being checked, to which messages about its value point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from libra_plan.errors import InputError, Where
from libra_plan.profiles.document import Document

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """A dotted key of a document, and the class of errors about its value."""

    document: Document
    error: type[InputError]
    key: str = ""

    def at(self, below: str) -> Place:
        """Return the place of a key below this one."""
        return replace(self, key=f"{self.key}.{below}" if self.key and below else self.key or below)

    @property
    def where(self) -> Where:
        """The file, line and key of this place."""
        return self.document.where(self.key)

    def refuse(self, what: str, below: str = "", **parts: object) -> NoReturn:
        """Raise the error for a key below; `parts` are `got`, `allowed` and `way_out`."""
        raise self.error(what, **parts, where=self.at(below).where)  # type: ignore[arg-type]

    def refuse_if(self, wrong: bool, what: str, below: str = "", **parts: object) -> None:
        """Raise the error where something is wrong."""
        if wrong:
            self.refuse(what, below, **parts)

    def require_unique(self, ids: Sequence[str], noun: str) -> None:
        """Refuse two entries of the list at this place that have one id."""
        first: dict[str, int] = {}
        for position, name in enumerate(ids):
            if first.setdefault(name, position) != position:
                other = self.document.where(f"{self.key}[{first[name]}].id").line
                raise self.error(
                    f"two {noun}s have the id `{name}`",
                    got=f"the other on line {other}",
                    way_out=f"give each {noun} its own id",
                    where=self.document.where(f"{self.key}[{position}].id"),
                )
