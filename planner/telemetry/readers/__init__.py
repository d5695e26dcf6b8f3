"""Readers of metrics that trainers and engines write anyway, so that nobody need touch a loop.

A new one is a module with a `READER` and a line in `READERS`.
"""

from __future__ import annotations

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.readers import nemo_rl, slime, verl, vllm
from libra_plan.planner.telemetry.readers.base import Reader, ReaderFacts
from libra_plan.profiles import wording

__all__ = ["READERS", "Reader", "ReaderFacts", "find_reader"]

READERS: dict[str, Reader] = {
    each.name: each for each in (verl.READER, nemo_rl.READER, slime.READER, vllm.READER)
}


def find_reader(name: str) -> Reader:
    """Give the reader of a name, or refuse with the names there are."""
    if name not in READERS:
        raise InputError(
            "no such reader",
            got=name,
            allowed=wording.one_of(READERS),
            way_out=wording.did_you_mean(name, READERS),
        )
    return READERS[name]
