"""Values as bytes, the same for equal values, and their digests."""

from __future__ import annotations

import hashlib
import zlib
from typing import TypeVar

import msgspec

__all__ = ["digest_of", "from_bytes", "packed", "to_bytes", "unpacked"]

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
ValueT = TypeVar("ValueT")


def to_bytes(value: object) -> bytes:
    """Encode a value; floats keep every bit, sets and maps are sorted."""
    return _ENCODER.encode(value)


def from_bytes(data: bytes, kind: type[ValueT]) -> ValueT:
    """Decode what `to_bytes` gave."""
    return msgspec.msgpack.decode(data, type=kind)


def digest_of(data: bytes) -> str:
    """Give `sha256:…` of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def packed(data: bytes) -> bytes:
    """Compress bytes for the store."""
    return zlib.compress(data, 6)


def unpacked(data: bytes) -> bytes:
    """Undo `packed`; raises zlib.error when the bytes are damaged."""
    return zlib.decompress(data)
