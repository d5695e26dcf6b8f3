"""Readers of metrics that trainers and engines write anyway, so that no training loop must change.

A new one is a module with a `READER` and a line in `READERS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.readers import nemo_rl, slime, verl, vllm
from libra_plan.planner.telemetry.readers.base import Reader, ReaderFacts
from libra_plan.planner.telemetry.work_windows import (
    SkippedRecord,
    WorkWindow,
    believable,
    find_recordings,
    read_windows,
)
from libra_plan.profiles import wording
from libra_plan.profiles.importers.records import SourceFiles, read_source

__all__ = ["READERS", "Reader", "ReaderFacts", "find_reader", "paths_of", "read_work"]

READERS: dict[str, Reader] = {
    each.name: each for each in (verl.READER, nemo_rl.READER, slime.READER, vllm.READER)
}


def find_reader(name: str) -> Reader:
    """Return the reader of a name; raise an InputError that lists the names there are."""
    if name not in READERS:
        raise InputError(
            "no such reader",
            got=name,
            allowed=wording.one_of(READERS),
            way_out=wording.did_you_mean(name, READERS),
        )
    return READERS[name]


def paths_of(recordings: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the paths of one recording or of several; a lone string is one path."""
    return [Path(each) for each in ([recordings] if isinstance(recordings, str | Path) else recordings)]


def read_work(
    paths: Sequence[Path], reader: str, facts: ReaderFacts, left_out: list[SkippedRecord]
) -> Iterator[WorkWindow]:
    """Read windows of our counters (`counter`), or of another program's metrics."""
    if reader == "counter":
        yield from read_windows(find_recordings(paths), left_out)
        return
    found = find_reader(reader)
    sources = [read_source(path, found.endings) for path in paths]
    texts = tuple(text for each in sources for text in each.texts)  # one run: steps go on over files
    source = SourceFiles(sources[0].path, texts, sources[0].sha256)
    yield from believable(found.read(source, facts, left_out), left_out)
