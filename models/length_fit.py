"""Laws of lengths from what was observed: a log-normal with a cut, and the drift of its mean over steps.

A log-normal that is redrawn beyond a cut is, in logarithms, a normal law truncated on the right. Its
likelihood is greatest where its mean and variance are those observed, so that one equation remains: with
c the logarithm of the cut, α = (c − μ)/σ and λ = φ(α)/Φ(α),

    mean = μ − σ·λ,    variance = σ²·(1 − α·λ − λ²),    variance ÷ (c − mean)² = (1 − αλ − λ²)/(α + λ)².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from libra_plan.errors import WorkloadError
from libra_plan.models.length_forecast import LEAST_HISTORY, law_mean_tokens, scaled
from libra_plan.models.lengths import FloatArray, sample_lengths
from libra_plan.profiles.schema import LogNormal

__all__ = ["LEAST_LENGTHS", "DriftFit", "LengthFit", "fit_drift", "fit_log_normal"]

LEAST_LENGTHS = 100
"""Lengths below which a tail is a guess."""
_GROUPS = 20  # of the jackknife
_LEAST_ALPHA, _NO_CUT = -3.0, 8.0  # beyond: nearly all would lie behind the cut; the cut cuts nothing
_Z90 = NormalDist().inv_cdf(0.95)
_LEVELS = (0.5, 0.95, 0.99)


@dataclass(frozen=True)
class LengthFit:
    """A log-normal with a cut, and how good it is.

    `sigma_low` to `sigma_high` holds sigma with 90 %. `distance` is the greatest difference of the shares of
    lengths up to any length (Kolmogorov–Smirnov). `quantiles`: level, observed and of the law, tokens.
    """

    law: LogNormal
    mean_tokens: float
    sigma_low: float
    sigma_high: float
    lengths: int
    at_cut: float
    distance: float
    quantiles: tuple[tuple[float, float, float], ...]


def fit_log_normal(groups: Sequence[Sequence[int]], cut_tokens: int | None = None) -> LengthFit:
    """Fit lengths, tokens: groups have means of their own (steps, while lengths drift) and one sigma.

    `cut_tokens` is the longest response the framework allows; None, or one that lengths pass: the longest
    seen. The law has the mean of all lengths; those at the cut count as lengths just below it.
    """
    every = np.sort(np.concatenate([np.asarray(group, dtype=float) for group in groups] or [np.zeros(0)]))
    if len(every) < LEAST_LENGTHS or every[0] < 1:
        raise WorkloadError(
            "too few lengths to fit a law",
            got=f"{len(every)} lengths",
            allowed=f"at least {LEAST_LENGTHS}, each of 1 token or more",
            way_out="record more trajectories, or keep the law of the base world",
        )
    longest = int(every[-1])
    cut = longest if cut_tokens is None else max(longest, cut_tokens)
    logs = [
        np.log(np.asarray(group, dtype=float) + 0.5) for group in groups if len(group) > 1
    ]  # whole tokens
    limit = math.log(cut + 0.5)
    sigma = _common_sigma(logs, limit)
    low, high = _jackknife(logs, limit, sigma)
    law = _with_mean(sigma, cut, float(every.mean()))
    placed = np.sort(sample_lengths(law, len(every)).tokens.astype(float))
    return LengthFit(
        law,
        float(every.mean()),
        low,
        high,
        len(every),
        float((every >= cut).mean()),
        _distance(every, placed),
        tuple((q, float(np.quantile(every, q)), float(np.quantile(placed, q))) for q in _LEVELS),
    )


def _with_mean(sigma: float, cut: int, mean_tokens: float) -> LogNormal:
    base = LogNormal(
        median_tokens=min(mean_tokens * math.exp(-(sigma**2) / 2.0), float(cut)), sigma=sigma, max_tokens=cut
    )
    found = scaled(base, mean_tokens / law_mean_tokens(base))
    assert isinstance(found, LogNormal)
    return found


def _common_sigma(logs: Sequence[FloatArray], limit: float) -> float:
    """Return the sigma of groups with means of their own, weighted by their sizes."""
    sizes = [len(group) for group in logs]
    found = [_sigma(float(group.mean()), float(group.var(ddof=1)), limit) for group in logs]
    return float(np.average(found, weights=sizes))


def _sigma(mean: float, variance: float, limit: float) -> float:
    """Solve for sigma by bisection over α; the ratio falls as α grows."""
    below = limit - mean
    if variance <= 0.0 or below <= 0.0:
        return 0.0
    wanted = variance / below**2
    if wanted >= _ratio(_LEAST_ALPHA):
        raise WorkloadError(
            "the lengths are no log-normal with a cut",
            got=f"a spread of {math.sqrt(variance):.3g} in ln tokens, mean {below:.3g} below the cut",
            allowed="a law of which a good part lies below the cut",
            way_out="nearly all lengths run into the cut: keep the base's law, or raise the cut",
        )
    if wanted <= _ratio(_NO_CUT):
        return math.sqrt(variance)
    low, high = _LEAST_ALPHA, _NO_CUT
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _ratio(middle) > wanted else (low, middle)
    return below / (low + _hazard(low))


def _hazard(alpha: float) -> float:
    """Return φ(α)/Φ(α)."""
    density = math.exp(-(alpha**2) / 2.0) / math.sqrt(2.0 * math.pi)
    return density / (0.5 * math.erfc(-alpha / math.sqrt(2.0)))


def _ratio(alpha: float) -> float:
    hazard = _hazard(alpha)
    return (1.0 - alpha * hazard - hazard**2) / (alpha + hazard) ** 2


def _jackknife(logs: Sequence[FloatArray], limit: float, sigma: float) -> tuple[float, float]:
    """Return the 90 % interval of sigma from leaving out a twentieth of every group at a time."""
    left = [
        _common_sigma(
            [np.delete(group, slice(out, None, _GROUPS)) for group in logs if len(group) > 2], limit
        )
        for out in range(_GROUPS)
    ]
    spread = math.sqrt((_GROUPS - 1) / _GROUPS * float(((np.array(left) - np.mean(left)) ** 2).sum()))
    return max(0.0, sigma - _Z90 * spread), sigma + _Z90 * spread


def _distance(observed: FloatArray, law: FloatArray) -> float:
    """Return the greatest difference of two empirical distributions of one size."""
    at = np.concatenate((observed, law))
    shares = [np.searchsorted(each, at, side="right") / len(each) for each in (observed, law)]
    return float(np.abs(shares[0] - shares[1]).max())


@dataclass(frozen=True)
class DriftFit:
    """The mean length over steps: constant (`last_tokens` None), or by one factor every step.

    `change_low` to `change_high` holds last ÷ first with 90 %; `residual` is the spread of ln(mean ÷ fit).
    """

    first_tokens: float
    last_tokens: float | None
    steps: int
    change_low: float
    change_high: float
    residual: float


def fit_drift(means: Sequence[tuple[float, float]]) -> DriftFit:
    """Fit ln mean = a + b·step to (step, mean tokens) by least squares; a drift that noise explains is none.

    The error of b takes the correlation of successive residuals into account, as many effective steps as
    (1 − ρ)/(1 + ρ) leaves.
    """
    tokens = np.array([mean for _, mean in means], dtype=float)
    if len(means) < LEAST_HISTORY or min(tokens) <= 0:
        raise WorkloadError(
            "too few steps to tell a drift of lengths",
            got=f"{len(means)} steps with a mean length",
            allowed=f"at least {LEAST_HISTORY}",
            way_out="record more steps, or keep the drift of the base world",
        )
    logs = np.log(tokens)
    at = np.array([step for step, _ in means], dtype=float)
    slope, start = (float(each) for each in np.polyfit(at, logs, 1))
    left = logs - (start + slope * at)
    spread = float(np.sqrt((left**2).sum() / (len(logs) - 2)))
    last = max(1, round(float(at[-1])))
    error = spread / math.sqrt(float(((at - at.mean()) ** 2).sum())) * _inflation(left)
    low, high = math.exp((slope - _Z90 * error) * last), math.exp((slope + _Z90 * error) * last)
    if low <= 1.0 <= high:
        flat = float(tokens.mean())
        return DriftFit(flat, None, last, low, high, float(np.std(logs - math.log(flat))))
    start += spread**2 / 2.0  # the mean of a log-normal is above its median
    return DriftFit(math.exp(start), math.exp(start + slope * last), last, low, high, spread)


def _inflation(residuals: FloatArray) -> float:
    total = float((residuals**2).sum())
    if total <= 1e-18 * len(residuals):
        return 1.0
    lag = float((residuals[1:] * residuals[:-1]).sum()) / total
    kept = min(max(lag, 0.0), 0.95)
    return math.sqrt((1.0 + kept) / (1.0 - kept))
