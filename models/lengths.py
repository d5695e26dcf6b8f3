"""Prompt and response lengths of a step's work: quantile samples and tails.

A stage is priced on a deterministic sample of the law, never on its mean: the few longest responses
hold a whole rollout step (RollPacker reports rollout at about 70 % of a step for that reason).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from libra_plan.errors import WorkloadError
from libra_plan.profiles.schema import Distribution, Fixed, Histogram, LogNormal

__all__ = ["FloatArray", "IntArray", "LengthSample", "sample_lengths"]

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LengthSample:
    """Lengths in tokens, ascending, each ≥ 1. Shape (n,)."""

    tokens: IntArray

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def total(self) -> int:
        """Add the lengths, tokens."""
        return int(self.tokens.sum())

    @property
    def longest(self) -> int:
        """The longest length, tokens."""
        return int(self.tokens[-1])

    @property
    def mean(self) -> float:
        """The mean length, tokens."""
        return float(self.tokens.mean())

    @property
    def squares_ratio(self) -> float:
        """ΣS²/ΣS, tokens: the length whose attention cost per token equals that of the sample."""
        return float((self.tokens.astype(float) ** 2).sum() / self.total)


def sample_lengths(
    spec: Distribution, count: int, traces: Mapping[str, Sequence[int]] | None = None
) -> LengthSample:
    """Return the stratified quantile sample of a law: its quantiles at (i + ½)/count, in whole tokens.

    `lognormal` is the log-normal law truncated at `max_tokens`: the quantiles are those of the law
    given that the length does not pass the cut, so no mass piles up at the cut. `traces` maps the
    file names of `trace` laws to the observed lengths.
    """
    levels = (np.arange(count) + 0.5) / count
    if isinstance(spec, Fixed):
        values = np.full(count, float(spec.tokens))
    elif isinstance(spec, LogNormal):
        values = _truncated_log_normal(spec, levels)
    elif isinstance(spec, Histogram):
        values = _histogram(spec, levels)
    else:
        values = _empirical(spec.file, levels, traces or {})
    return LengthSample(np.maximum(np.floor(values), 1.0).astype(np.int64))


def _truncated_log_normal(spec: LogNormal, levels: FloatArray) -> FloatArray:
    if spec.sigma == 0.0:
        if spec.median_tokens > spec.max_tokens:
            raise WorkloadError(
                "no length lies below the cut",
                got=f"median_tokens {spec.median_tokens:g} with sigma 0",
                allowed=f"at most max_tokens {spec.max_tokens}",
            )
        return np.full(len(levels), spec.median_tokens)
    normal = NormalDist(math.log(spec.median_tokens), spec.sigma)
    kept = normal.cdf(math.log(spec.max_tokens))
    if kept < 1e-6:  # the quantiles of so thin a tail would only be rounding noise
        raise WorkloadError(
            "nearly no length lies below the cut",
            got=f"median_tokens {spec.median_tokens:g}, max_tokens {spec.max_tokens}",
            way_out="raise max_tokens or lower median_tokens",
        )
    logs = np.array([normal.inv_cdf(level) for level in (levels * kept).tolist()])
    cut: FloatArray = np.minimum(np.exp(logs), float(spec.max_tokens))
    return cut


def _histogram(spec: Histogram, levels: FloatArray) -> FloatArray:
    edges = np.array(spec.edges_tokens, dtype=float)
    counts = np.array(spec.counts, dtype=float)
    if len(edges) != len(counts) + 1 or np.any(np.diff(edges) <= 0) or counts.sum() <= 0:
        raise WorkloadError(
            "a histogram needs rising edges and some counts",
            got=f"{len(edges)} edges, {len(counts)} counts",
            allowed="one more edge than counts, edges strictly rising, counts not all 0",
        )
    filled = counts > 0  # an empty bin holds no length, and would make the inverse ambiguous
    reached = np.cumsum(counts[filled]) / counts.sum()
    bin_of = np.searchsorted(reached, levels, side="left").clip(max=len(reached) - 1)
    start = np.concatenate(([0.0], reached[:-1]))[bin_of]
    share = (levels - start) / (reached[bin_of] - start)
    low, high = edges[:-1][filled][bin_of], edges[1:][filled][bin_of]
    inside: FloatArray = np.minimum(low + share * (high - low), high - 1.0)  # bins are [low, high)
    return inside


def _empirical(file: str, levels: FloatArray, traces: Mapping[str, Sequence[int]]) -> FloatArray:
    if file not in traces:
        raise WorkloadError("the trace was not read", got=file, allowed=", ".join(sorted(traces)) or "none")
    observed: NDArray[Any] = np.sort(np.asarray(traces[file], dtype=float))
    if len(observed) == 0 or observed[0] < 1:
        raise WorkloadError(
            "a trace holds lengths of 1 token and more", got=f"{file}, {len(observed)} lengths"
        )
    result: FloatArray = observed[np.floor(levels * len(observed)).astype(np.int64)]
    return result
