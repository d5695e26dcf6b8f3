"""Sizes of memory."""

from libra_plan.profiles.units import GIB, MIB, MIB_PER_GIB


def test_sizes_are_binary():
    """MB and GB of data sheets are decimal and must be converted before they get here."""
    assert MIB == 1024 * 1024
    assert GIB / MIB == MIB_PER_GIB == 1024
