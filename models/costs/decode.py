"""Seconds of one decode step against batch and context, measured alone or by a serving engine.

    decode  t(B, c)    = a + r·√B + b·B + k·B·c
    serve   t(B, I, O) = a + r·√B + b·B + k·B·(I + O/2) + p·B·I/O

a: weights, launches. k: KV reads. b: per-sequence work. √B follows the slow growth of matrix
multiplications from one to a few dozen rows, where a plain affine form errs by 5 to 10 %. In steady
state an engine with B requests in flight, prompts of I and outputs of O tokens decodes at the mean
context, and each output token shares the engine with I/O prompt tokens of other requests (p).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from libra_plan.models.costs.base import Array, DecodeCoefficients, FormStruct, Places, relative_nnls

__all__ = ["DecodeForm", "ServeForm", "fit_affine_decode", "fit_decode", "fit_serve"]


class DecodeForm(FormStruct, frozen=True, tag=True):
    """A decode step, seconds; `per_token_s` is per sequence and token of context."""

    fixed_s: float
    per_root_sequence_s: float
    per_sequence_s: float
    per_token_s: float

    def predict(self, at: Places) -> Array:
        """Evaluate at places (batch, context, –)."""
        batch = at[:, 0]
        growth = self.per_root_sequence_s * np.sqrt(batch) + self.per_sequence_s * batch
        seconds: Array = self.fixed_s + growth + self.per_token_s * batch * at[:, 1]
        return seconds

    def affine(self, least_batch: float, largest_batch: float, error: float) -> DecodeCoefficients:
        """Return the step without √B, exact at the least and the largest batch."""
        low, high = math.sqrt(least_batch), math.sqrt(largest_batch)
        slope = self.per_root_sequence_s / (low + high)
        fixed = self.fixed_s + self.per_root_sequence_s * low * high / (low + high)
        return DecodeCoefficients(fixed, self.per_sequence_s + slope, self.per_token_s, error)


class ServeForm(DecodeForm, frozen=True, tag=True):
    """Time per output token, seconds."""

    per_prefill_s: float

    def predict(self, at: Places) -> Array:
        """Evaluate at places (concurrency, prompt, output)."""
        numbers = (self.fixed_s, self.per_root_sequence_s, self.per_sequence_s, self.per_token_s)
        seconds: Array = _serve_terms(at) @ np.array([*numbers, self.per_prefill_s])
        return seconds

    def affine(self, least_batch: float, largest_batch: float, error: float) -> DecodeCoefficients:
        """Return the step without √B, exact at the least and the largest concurrency."""
        base = DecodeForm.affine(self, least_batch, largest_batch, error)
        return replace(base, per_prefill_s=self.per_prefill_s)


def fit_decode(at: Places, measured: Array, weights: Array) -> DecodeForm:
    """Fit the four coefficients, all ≥ 0."""
    batch, context = at[:, 0], at[:, 1]
    terms = np.stack([np.ones_like(batch), np.sqrt(batch), batch, batch * context], axis=1)
    return DecodeForm(*map(float, relative_nnls(terms, measured, weights)))


def fit_affine_decode(at: Places, measured: Array, weights: Array) -> DecodeForm:
    """Fit without √B: the affine step that closed-form rollout times need."""
    batch, context = at[:, 0], at[:, 1]
    terms = np.stack([np.ones_like(batch), batch, batch * context], axis=1)
    fixed, per_sequence, per_token = map(float, relative_nnls(terms, measured, weights))
    return DecodeForm(fixed, 0.0, per_sequence, per_token)


def fit_serve(at: Places, measured: Array, weights: Array) -> ServeForm:
    """Fit the five coefficients, all ≥ 0."""
    return ServeForm(*map(float, relative_nnls(_serve_terms(at), measured, weights)))


def _serve_terms(at: Places) -> Array:
    batch, prompt, output = at[:, 0], at[:, 1], at[:, 2]
    context = prompt + output / 2
    columns = [np.ones_like(batch), np.sqrt(batch), batch, batch * context, batch * prompt / output]
    return np.stack(columns, axis=1)
