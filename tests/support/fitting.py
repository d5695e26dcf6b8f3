"""Points that follow a known law, and a profile to fit them with."""

from collections.abc import Callable

from affine_profile import profile_file

from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.profiles.catalog import load_profile, shipped_folder
from libra_plan.profiles.schema import Point

GRID = [(batch, length) for batch in (1, 4, 16, 64) for length in (512, 2048, 8192)]
Law = Callable[[float, float], float]


def decode_law(batch: float, length: float) -> float:
    """Return seconds of a decode step without noise."""
    return 5e-3 + 2e-5 * batch + 3e-7 * batch * length


def cache_law(batch: float, length: float) -> float:
    """Return MiB of a decode step without noise."""
    return 16000 + 0.05 * batch * length


def points_of(time: Law = decode_law, memory: Law | None = cache_law, grid=GRID, **rest) -> list[Point]:
    """Make measured points on a grid of (batch, length)."""
    return [
        Point(
            batch_sequences=batch,
            seq_len_tokens=length,
            time_s=time(batch, length),
            peak_reserved_mib=None if memory is None else memory(batch, length),
            **rest,
        )
        for batch, length in grid
    ]


def fitted(phase: str = "decode", points: list[Point] | None = None, **software) -> FittedProfile:
    """Fit points (by default the decode law) as a profile of a 7B model."""
    return fit_profile(profile_file(phase, **software), points_of() if points is None else points)


def shipped(name: str) -> FittedProfile:
    """Fit a shipped H200 profile, say `7b-decode`."""
    profile = load_profile(shipped_folder() / f"h200-qwen2.5-{name}")
    return fit_profile(profile.file, profile.points)
