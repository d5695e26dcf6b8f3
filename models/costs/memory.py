"""Peak memory of one GPU against batch and length, MiB.

Passes over tokens (score, train):  max(m, s + a·min(N, chunk) + b·N),  N = B·S
Generation (decode, serve):         s + a·B + b·B·length

m: what stands whatever the pass (states at the optimizer's step). a·min(N, chunk): logits and
activations that a framework works through in chunks of tokens; the chunk is found from the points.
Peaks of different moments join by max, not by sum.
"""

from __future__ import annotations

import numpy as np

from libra_plan.models.costs.base import Array, FormStruct, Places, relative_nnls

__all__ = ["CacheForm", "ChunkForm", "fit_cache_memory", "fit_chunk_memory"]

_FLOOR_MUST_GAIN = 0.001
"""A standing floor must lower the mean relative error by 0.1 % to be kept."""


class CacheForm(FormStruct, frozen=True, tag=True):
    """Memory of a role that keeps a KV cache, MiB."""

    fixed_mib: float
    per_sequence_mib: float
    per_token_mib: float

    @property
    def constant(self) -> float:
        """MiB that neither batch nor length moves."""
        return self.fixed_mib

    def predict(self, at: Places) -> Array:
        """Evaluate at places (batch, prompt or context, output): the cache ends at their sum."""
        batch, length = at[:, 0], at[:, 1] + at[:, 2] - 1
        mib: Array = self.fixed_mib + self.per_sequence_mib * batch + self.per_token_mib * batch * length
        return mib


class ChunkForm(FormStruct, frozen=True, tag=True):
    """Memory of a role that passes over tokens, MiB."""

    standing_mib: float
    fixed_mib: float
    per_chunk_token_mib: float
    per_token_mib: float
    chunk_tokens: float

    @property
    def constant(self) -> float:
        """MiB that neither batch nor length moves."""
        return self.fixed_mib

    def predict(self, at: Places) -> Array:
        """Evaluate at places (batch, length, –)."""
        tokens = at[:, 0] * at[:, 1]
        chunked = self.per_chunk_token_mib * np.minimum(tokens, self.chunk_tokens)
        mib: Array = np.maximum(self.standing_mib, self.fixed_mib + chunked + self.per_token_mib * tokens)
        return mib


def fit_cache_memory(at: Places, measured: Array, weights: Array) -> CacheForm:
    """Fit the three coefficients, all ≥ 0."""
    batch, length = at[:, 0], at[:, 1] + at[:, 2] - 1
    terms = np.stack([np.ones_like(batch), batch, batch * length], axis=1)
    return CacheForm(*map(float, relative_nnls(terms, measured, weights)))


def fit_chunk_memory(at: Places, measured: Array, weights: Array) -> ChunkForm:
    """Try each power of two as chunk, and with and without a standing floor; keep the best.

    Where points cannot tell two candidates apart the larger chunk without a floor is kept.
    """
    tokens = at[:, 0] * at[:, 1]
    first, last = np.floor(np.log2(tokens.min())) + 1, np.ceil(np.log2(tokens.max()))
    chunks = [2.0**power for power in np.arange(first, last)][::-1] or [float(tokens.max())]
    floors = [0.0, *sorted(measured)[: max(1, len(measured) // 3)]]
    forms = [_with_chunk(tokens, measured, weights, chunk, floor) for chunk in chunks for floor in floors]
    losses = [_loss(form, at, measured, weights) for form in forms]
    return forms[int(np.argmin(np.round(losses, 3)))]


def _loss(form: ChunkForm, at: Places, measured: Array, weights: Array) -> float:
    missed = weights * np.abs(np.log(form.predict(at) / measured))
    return float(missed.mean()) + (_FLOOR_MUST_GAIN if form.standing_mib > 0 else 0.0)


def _with_chunk(tokens: Array, measured: Array, weights: Array, chunk: float, floor: float) -> ChunkForm:
    terms = np.stack([np.ones_like(tokens), np.minimum(tokens, chunk), tokens], axis=1)
    # Rows at the floor only show that the sum lies below it there.
    above = measured > floor * (1 + 1e-9)
    if above.sum() < terms.shape[1]:
        above = np.ones_like(above)
    fixed, per_chunk, per_token = relative_nnls(terms[above], measured[above], weights[above], rounds=3)
    return ChunkForm(float(floor), float(fixed), float(per_chunk), float(per_token), float(chunk))
