"""Flags become facts, or are refused in words."""

import pytest

from libra_plan.errors import InputError
from libra_plan.profiles.importers.facts import FLAGS, ImportFacts, demand, facts_from_flags


def test_flags_are_read_however_they_are_spelt():
    """The command hands over `--gpu-class`, a script may write gpu_class."""
    for name in ("--gpu-class", "gpu-class", "gpu_class"):
        assert facts_from_flags({name: "h200_sxm"}).gpu_class == "h200_sxm"


def test_every_example_is_accepted():
    """A way out that is refused is none."""
    for name, flag in FLAGS.items():
        if name != "params":
            facts_from_flags({name: flag.example})


def test_values_keep_their_types():
    """An engine's share of memory is a number, its backend a word."""
    flags = facts_from_flags(
        {"flags": "gpu_memory_utilization=0.9,graphs=true,chunk=2048,attention=fa3"}
    ).flags
    assert flags == {"gpu_memory_utilization": 0.9, "graphs": True, "chunk": 2048, "attention": "fa3"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tp", "0"),  # degrees start at 1
        ("tp", "two"),
        ("gpu-memory-mib", "inf"),
        ("gpu-class", "h200 sxm"),  # the cluster file would refuse it
        ("phase", "rollout"),
        ("columns", "time_s"),  # no pair
        ("columns", "time_s="),
        ("model", "gpt-nobody-knows"),
    ],
)
def test_what_is_not_understood_is_refused(name, text):
    """Each refusal says what was got and what is allowed."""
    with pytest.raises(InputError) as caught:
        facts_from_flags({name: text})
    assert caught.value.got == text
    assert caught.value.allowed is not None
    assert caught.value.way_out is not None


def test_an_unknown_flag_suggests_the_nearest():
    """A slip of the finger is told as one."""
    with pytest.raises(InputError, match="--gpu-class"):
        facts_from_flags({"gpu-clas": "h200_sxm"})


def test_nothing_missing_is_no_complaint():
    """Facts given are not asked for again."""
    demand(ImportFacts(tp=1, gpu_class="h200_sxm"), ["tp", "gpu_class"], "a log", "log.jsonl")
