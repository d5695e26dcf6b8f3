"""Time per output token of a serving engine in steady state.

    t(B, I, O) = a + r·√B + b·B + k·B·(I + O/2) + p·B·I/O

with B requests in flight, prompts of I and outputs of O tokens. The decode form at the mean
context, plus p: each output token shares the engine with I/O prompt tokens of other requests.
"""

from __future__ import annotations

import msgspec
import numpy as np

from libra_plan.models.forms import FormStruct, Places
from libra_plan.models.nnls import Array, relative_nnls

__all__ = ["ServeForm", "fit_serve"]


class ServeForm(FormStruct, frozen=True, tag=True):
    """Time per output token, seconds."""

    fixed_s: float
    per_root_sequence_s: float
    per_sequence_s: float
    per_token_s: float
    per_prefill_s: float

    def predict(self, at: Places) -> Array:
        """Evaluate at places (concurrency, prompt, output)."""
        seconds: Array = _terms(at) @ np.array(msgspec.structs.astuple(self))
        return seconds


def _terms(at: Places) -> Array:
    batch, prompt, output = at[:, 0], at[:, 1], at[:, 2]
    context = prompt + output / 2
    columns = [np.ones_like(batch), np.sqrt(batch), batch, batch * context, batch * prompt / output]
    return np.stack(columns, axis=1)


def fit_serve(at: Places, measured: Array, weights: Array) -> ServeForm:
    """Fit the five coefficients, all ≥ 0."""
    return ServeForm(*map(float, relative_nnls(_terms(at), measured, weights)))
