"""Response lengths some steps ahead: level and trend of the last steps, and how sure that is.

Lengths drift while a policy learns, by factors rather than by tokens, so the logarithm is smoothed
(Holt's linear method with a damped trend):

    level_t = α·y_t + (1 − α)·(level + φ·trend)        forecast_h = level + (φ + … + φ^h)·trend
    trend_t = β·(level_t − level) + (1 − β)·φ·trend

α, β and φ are those with the least error over the history itself: every step is forecast from the
steps before it (rolling origin). The same errors, h steps ahead, give the interval; a horizon with
too few of them takes those of one step times √h, or the largest seen if that is more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from libra_plan.errors import WorkloadError
from libra_plan.models.costs.base import LARGEST_SIZE, LEAST_SIZE
from libra_plan.models.curves.curve import MARGIN, upper_quantile
from libra_plan.models.lengths import FloatArray
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.profiles.schema import Distribution, Fixed, Histogram, LogNormal

__all__ = ["LEAST_HISTORY", "LengthForecast", "forecast_lengths", "law_mean_tokens", "scaled"]

_LARGEST_EXPONENT = 700.0  # e to more leaves the floating-point range
LEAST_HISTORY = 6
"""Steps below which no trend can be told from noise."""
_LEVEL = 0.9
_GRID = tuple(itertools.product((0.1, 0.2, 0.3, 0.5, 0.8), (0.0, 0.05, 0.1, 0.3), (0.9, 1.0)))
_FIRST_ORIGIN = 4
"""Steps that a forecast on the way is made from at least."""


@dataclass(frozen=True)
class LengthForecast:
    """A smoothed history: level and trend of ln tokens, and the errors it made h steps ahead.

    `errors[h − 1]` holds ln(observed ÷ forecast) of every step that could be forecast h ahead.
    """

    level: float
    trend: float
    damping: float
    errors: tuple[tuple[float, ...], ...]
    steps: int

    def at(self, steps_ahead: int) -> Estimate:
        """Return the mean response length, tokens, with an interval that held 90 % of the history.

        0 is the smoothed level now. Further ahead than the history is long is refused.
        """
        if not 0 <= steps_ahead <= self.steps:
            raise WorkloadError(
                "the history is too short to forecast so far ahead",
                got=f"{steps_ahead} steps ahead from {self.steps} steps",
                allowed=f"0 to {self.steps}",
                way_out="give more of history_tokens, or ask for fewer steps",
            )
        value = self.level + self.trend * _damped(self.damping, steps_ahead)
        if not math.log(LEAST_SIZE) <= value <= math.log(LARGEST_SIZE):
            raise WorkloadError(
                "the history foretells lengths that no response has",
                got=f"10^{value / math.log(10):.0f} tokens {steps_ahead} steps ahead",
                way_out="check history_tokens, or ask for fewer steps",
            )
        below, above = self._bounds(max(steps_ahead, 1))
        low, high = math.exp(value - below), math.exp(min(value + above, _LARGEST_EXPONENT))
        return Estimate(math.exp(value), low, high, "tokens", Origin.EXTRAPOLATED)

    def _bounds(self, ahead: int) -> tuple[float, float]:
        level = (1 + _LEVEL) / 2  # each side
        own = self.errors[ahead - 1] if ahead <= len(self.errors) else ()
        above = upper_quantile(own, level, 0.0) if own else 0.0
        below = upper_quantile([-error for error in own], level, 0.0) if own else 0.0
        if math.ceil((len(own) + 1) * level) <= len(own):
            return below, above
        spread = math.sqrt(ahead)
        one = self.errors[0]
        return (
            max(below, upper_quantile([-error for error in one], level, MARGIN) * spread),
            max(above, upper_quantile(one, level, MARGIN) * spread),
        )


def _damped(damping: float, steps: int) -> float:
    """Return φ + … + φ^h."""
    return float(sum(damping**step for step in range(1, steps + 1)))


def forecast_lengths(history_tokens: Sequence[float]) -> LengthForecast:
    """Smooth the mean response lengths of the last steps, oldest first, tokens each above 0."""
    if len(history_tokens) < LEAST_HISTORY or min(history_tokens) <= 0:
        raise WorkloadError(
            "a forecast of lengths needs a history",
            got=f"{len(history_tokens)} steps",
            allowed=f"at least {LEAST_HISTORY} mean lengths above 0, oldest first",
            way_out="add history_tokens to work_per_step",
        )
    logs = np.log(np.asarray(history_tokens, dtype=float))
    best = min(_GRID, key=lambda choice: _loss(_smooth(logs, *choice), choice[2], logs))
    path = _smooth(logs, *best)
    damping = best[2]
    most = len(logs) - _FIRST_ORIGIN
    errors = tuple(tuple(_errors(path, damping, logs, ahead).tolist()) for ahead in range(1, most + 1))
    level, trend = path[-1].tolist()
    return LengthForecast(level, trend, damping, errors, len(logs))


def _smooth(logs: FloatArray, alpha: float, beta: float, damping: float) -> FloatArray:
    """Return (level, trend) after each step, shape (steps, 2)."""
    level, trend = float(logs[0]), 0.0
    path = [(level, trend)]
    for value in logs[1:].tolist():
        before = level
        level = alpha * value + (1 - alpha) * (level + damping * trend)
        trend = beta * (level - before) + (1 - beta) * damping * trend
        path.append((level, trend))
    return np.array(path)


def _errors(path: FloatArray, damping: float, logs: FloatArray, ahead: int) -> FloatArray:
    made = path[_FIRST_ORIGIN - 1 : len(logs) - ahead]
    forecast = made[:, 0] + made[:, 1] * _damped(damping, ahead)
    errors: FloatArray = logs[_FIRST_ORIGIN - 1 + ahead :] - forecast
    return errors


def _loss(path: FloatArray, damping: float, logs: FloatArray) -> float:
    """Add the mean absolute errors one step ahead and a third of the history ahead."""
    far = max(1, (len(logs) - _FIRST_ORIGIN) // 3)
    return sum(float(np.abs(_errors(path, damping, logs, ahead)).mean()) for ahead in (1, far))


# ---------------------------------------------------------------- laws


def law_mean_tokens(spec: Distribution, traces: Mapping[str, Sequence[int]] | None = None) -> float:
    """Return the mean of a law, tokens; a log-normal is truncated at `max_tokens`, as it is sampled."""
    if isinstance(spec, Fixed):
        return float(spec.tokens)
    if isinstance(spec, LogNormal):
        return _truncated_mean(math.log(spec.median_tokens), spec.sigma, spec.max_tokens)
    if isinstance(spec, Histogram):
        edges, counts = np.array(spec.edges_tokens, dtype=float), np.array(spec.counts, dtype=float)
        return float((counts * (edges[:-1] + edges[1:] - 1) / 2).sum() / counts.sum())
    return float(np.mean(_trace(spec.file, traces)))


def scaled(
    spec: Distribution, factor: float, traces: Mapping[str, Sequence[int]] | None = None
) -> Distribution:
    """Return the law whose mean is `factor` times that of `spec`, of the same shape.

    A log-normal keeps its cut, a setting of the framework: its median moves until the truncated
    mean is right. A trace becomes the histogram of its scaled lengths.
    """
    if factor <= 0:
        raise ValueError(f"lengths cannot be scaled by {factor}")
    if isinstance(spec, Fixed):
        return Fixed(tokens=max(1, round(spec.tokens * factor)))
    if isinstance(spec, LogNormal):
        return _scaled_log_normal(spec, factor)
    if isinstance(spec, Histogram):
        edges = [round(edge * factor) for edge in spec.edges_tokens]
        for at in range(1, len(edges)):  # narrow bins must not vanish
            edges[at] = max(edges[at], edges[at - 1] + 1)
        return Histogram(edges_tokens=tuple(edges), counts=spec.counts)
    return _histogram_of(np.maximum(np.rint(np.asarray(_trace(spec.file, traces)) * factor), 1))


def _trace(file: str, traces: Mapping[str, Sequence[int]] | None) -> Sequence[int]:
    if traces is None or file not in traces:
        raise WorkloadError(
            "the trace was not read", got=file, allowed=", ".join(sorted(traces or {})) or "none"
        )
    return traces[file]


def _histogram_of(lengths: FloatArray) -> Histogram:
    """Return each length a bin of its own, one token wide."""
    values, counts = np.unique(lengths.astype(np.int64), return_counts=True)
    edges: list[int] = []
    weights: list[float] = []
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if edges and edges[-1] < value:
            edges.append(value)
            weights.append(0.0)
        elif not edges:
            edges.append(value)
        edges.append(value + 1)
        weights.append(float(count))
    return Histogram(edges_tokens=tuple(edges), counts=tuple(weights))


def _truncated_mean(location: float, sigma: float, most: float) -> float:
    """Return E[X | X ≤ most] of a log-normal: e^(μ + σ²/2)·Φ((ln m − μ − σ²)/σ) / Φ((ln m − μ)/σ)."""
    if sigma == 0:
        return math.exp(location)
    normal = NormalDist()
    cut = (math.log(most) - location) / sigma
    return math.exp(location + sigma**2 / 2) * normal.cdf(cut - sigma) / normal.cdf(cut)


def _scaled_log_normal(spec: LogNormal, factor: float) -> LogNormal:
    target = factor * law_mean_tokens(spec)
    if spec.sigma == 0:
        return LogNormal(median_tokens=target, sigma=0.0, max_tokens=spec.max_tokens)
    # the median reaches as far as a law of which 1e-4 lies below the cut; longer is all at the cut
    low, high = math.log(target) - 8 * spec.sigma - 8, math.log(spec.max_tokens) + 3.7 * spec.sigma
    if _truncated_mean(high, spec.sigma, spec.max_tokens) < target:
        raise WorkloadError(
            "the forecast length passes the cut",
            got=f"a mean of {target:.0f} tokens",
            allowed=f"clearly below max_tokens {spec.max_tokens}",
            way_out="raise max_tokens",
        )
    for _ in range(100):
        middle = (low + high) / 2
        if _truncated_mean(middle, spec.sigma, spec.max_tokens) < target:
            low = middle
        else:
            high = middle
    return LogNormal(median_tokens=math.exp(high), sigma=spec.sigma, max_tokens=spec.max_tokens)
