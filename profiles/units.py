"""Sizes of memory: amounts are in MiB, weights and links in GiB, all of bytes."""

from __future__ import annotations

__all__ = ["GIB", "MIB", "MIB_PER_GIB"]

MIB = 2.0**20
GIB = 2.0**30
MIB_PER_GIB = 1024.0
