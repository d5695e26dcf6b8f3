"""The formats by name. A new one is a module with a `Format` and a line here."""

from __future__ import annotations

from libra_plan.errors import InputError
from libra_plan.profiles import wording
from libra_plan.profiles.importers import (
    aiconfigurator,
    nemo_rl,
    plain_csv,
    recording,
    sglang_bench,
    verl,
    vllm_bench,
)
from libra_plan.profiles.importers.base import Format

__all__ = ["FORMATS", "find_format"]

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        vllm_bench.SERVE,
        vllm_bench.THROUGHPUT,
        sglang_bench.FORMAT,
        aiconfigurator.FORMAT,
        verl.FORMAT,
        nemo_rl.FORMAT,
        plain_csv.FORMAT,
        recording.FORMAT,
    )
}


def find_format(name: str) -> Format:
    """Give the format of a name, or refuse with the names there are."""
    if name not in FORMATS:
        raise InputError(
            "no such format",
            got=name,
            allowed=wording.one_of(FORMATS),
            way_out=wording.did_you_mean(name, FORMATS) or "any table can be imported as csv with --columns",
        )
    return FORMATS[name]
