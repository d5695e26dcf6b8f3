"""Keep fits between runs, so that a solve neither fits again nor imports scipy.

The key is the SHA-256 of the profile, its points and all code of models: a changed row or a
changed form is another key. What cannot be read is fitted anew and written again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.home import home_folder

__all__ = ["cache_folder", "cached_fit", "dump_fit", "fit_key", "load_fit"]


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Find the cache: $LIBRA_PLAN_CACHE, else libra-plan in $XDG_CACHE_HOME or ~/.cache."""
    own = environment.get("LIBRA_PLAN_CACHE")
    if own:
        return Path(own)
    shared = environment.get("XDG_CACHE_HOME", "")  # one that is not absolute is to be ignored
    return (
        Path(shared) if Path(shared).is_absolute() else home_folder(environment) / ".cache"
    ) / "libra-plan"


def cached_fit(profile: LoadedProfile, *, folder: Path | None = None) -> FittedProfile:
    """Fit a profile with those that join it, or take the fit from the user's cache or another `folder`.

    A cache that cannot be written is no error.
    """
    entry = (folder or cache_folder(os.environ)) / "fits" / f"{fit_key(profile)}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
        return load_fit(entry.read_bytes())
    fitted = fit_profile(
        profile.file, profile.points, extra=[(each.file, each.points) for each in profile.extra]
    )
    with contextlib.suppress(OSError):
        _write(entry, dump_fit(fitted))
    return fitted


def fit_key(profile: LoadedProfile) -> str:
    """Return the SHA-256 of profile, points and code of models, 64 hexadecimal digits."""
    digest = hashlib.sha256(_code_digest())
    everything = [[each.file, list(each.points)] for each in (profile, *profile.extra)]
    digest.update(msgspec.json.encode(everything, order="deterministic"))
    return digest.hexdigest()


def dump_fit(fitted: FittedProfile) -> bytes:
    """Write a fit as JSON with the SHA-256 of its text in front, so that damage shows."""
    body = msgspec.json.encode(fitted)
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def load_fit(data: bytes) -> FittedProfile:
    """Read a fit; ValueError or a msgspec error when it is damaged."""
    digest, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError("the stored fit is damaged")
    return msgspec.json.decode(body, type=FittedProfile)


@functools.cache
def _code_digest() -> bytes:
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(here.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()


def _write(entry: Path, data: bytes) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=entry.parent, prefix=".fit-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(temporary).replace(entry)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
