"""Predict the peak memory of a training step of one model from other models' measured peaks.

Three moments of a step, of which the largest counts; each counts bytes from the precision of the
row it is asked for, so donors with fp32 masters predict a pure bf16 model and the other way round:

    optimizer    states + c
    logits       states − gradients + c + 12·V·min(N, chunk) + t·(output table) + k·kept·N
    backward     states − last gradient + c + (k·kept + a·(live layer))·N

With the loss begun no gradient exists yet; before the last one is there (that of the input table,
where the output has its own) all layer inputs are still held. States and logits (12 bytes each, 0.44 with a
fused loss) are counted, not fitted; c, t, k and a (what an allocator holds beside them counts in) are
fitted to the donors' peaks together, and the chunk is the power of two that fits them best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from libra_plan.models.costs.base import Array, FormStruct, Places, places_of, relative_nnls
from libra_plan.models.curves.curve import CurveSample
from libra_plan.models.memory.shapes import kept_activations_mib, live_layer_mib, logits_mib
from libra_plan.models.memory.states import gradient_bytes, state_mib, tables_of
from libra_plan.models.parallelism import Layout
from libra_plan.profiles.schema import ProfileFile
from libra_plan.profiles.units import MIB

__all__ = ["TrainingPeak", "carry_training_peak"]

_ONE = Layout()
_CHUNKS = tuple(2.0**power for power in range(10, 17))
_ROUNDS = 12
_START = np.array([1024.0, 4.0, 1.0, 1.0])
"""Where the fit starts: 1 GiB, four bytes a parameter of the output's table, activations as counted."""
_CAST_BYTES = 4.0
"""Autocast's copy of the output table and the gradient of that copy, in bf16, beside fp32 masters."""
_LEAST_MIB = 1.0


class TrainingPeak(FormStruct, frozen=True, tag=True):
    """The peak of a training step, MiB, as the largest of three straight lines in tokens."""

    optimizer_mib: float
    logits_mib: float
    per_chunk_token_mib: float
    logits_per_token_mib: float
    backward_mib: float
    backward_per_token_mib: float
    chunk_tokens: float

    def predict(self, at: Places) -> Array:
        """Evaluate at places (batch, length, –)."""
        tokens = at[:, 0] * at[:, 1]
        chunked = self.per_chunk_token_mib * np.minimum(tokens, self.chunk_tokens)
        logits = self.logits_mib + chunked + self.logits_per_token_mib * tokens
        backward = self.backward_mib + self.backward_per_token_mib * tokens
        mib: Array = np.maximum(np.maximum(logits, backward), self.optimizer_mib)
        return mib


@dataclass(frozen=True, slots=True)
class _Bytes:
    """What one model holds on a GPU, MiB (per token where it says so)."""

    states: float
    gradients: float
    table: float
    last_gradient: float
    cast: float
    kept_per_token: float
    live_per_token: float
    logits_per_token: float

    @staticmethod
    def of(file: ProfileFile) -> _Bytes:
        model, software = file.model, file.software
        wide = software.precision.startswith("fp32")  # between layers autocast keeps what it was given
        words = model.vocab * model.hidden / MIB
        gradients = gradient_bytes(model, software, _ONE) / MIB
        own_tables = tables_of(model) > 1 and software.lora_rank is None
        return _Bytes(
            state_mib(model, software, _ONE, 1),
            gradients,
            words,
            gradients * words * MIB / model.params if own_tables else 0.0,
            _CAST_BYTES * words if wide else 0.0,
            kept_activations_mib(model, software, _ONE, 1.0, 1.0) * (2.0 if wide else 1.0),
            live_layer_mib(model, software, _ONE, 1.0, 1.0) + (18.0 * model.hidden / MIB if wide else 0.0),
            logits_mib(model, software, "train", _ONE, 1.0),
        )

    def standing(self) -> tuple[float, float, float]:
        """Return what is known to stand at each moment whatever the tokens."""
        stands = self.states + self.cast
        return stands, stands - self.gradients, stands - self.last_gradient

    def counted(self, tokens: Array, chunk: float) -> Array:
        """Return what is known at each moment, (moments, rows)."""
        known = np.repeat(np.array(self.standing())[:, None], len(tokens), axis=1)
        known[1] += self.logits_per_token * np.minimum(tokens, chunk)
        return known

    def terms(self, tokens: Array) -> Array:
        """Return the terms of (c, t, k, a) at each moment, (moments, rows, 4)."""
        one, none = np.ones_like(tokens), np.zeros_like(tokens)
        kept, live = self.kept_per_token * tokens, self.live_per_token * tokens
        rows = (
            (one, none, none, none),
            (one, self.table * one, kept, none),
            (one, none, kept, live),
        )
        return np.array([np.stack(row, axis=1) for row in rows])


def carry_training_peak(
    file: ProfileFile, sources: Sequence[tuple[ProfileFile, Sequence[CurveSample]]]
) -> TrainingPeak:
    """Fit the four numbers to the donors' peaks and give the lines of the model asked for."""
    measured = np.array([sample.value for _, samples in sources for sample in samples])
    tokens = [places_of([sample.place for sample in samples])[:, :2].prod(axis=1) for _, samples in sources]
    held = [_Bytes.of(profile) for profile, _ in sources]
    terms = np.concatenate([each.terms(rows) for each, rows in zip(held, tokens, strict=True)], axis=1)
    fits = []
    for chunk in _CHUNKS:
        parts = [each.counted(rows, chunk) for each, rows in zip(held, tokens, strict=True)]
        fits.append((*_joint_fit(np.concatenate(parts, axis=1), terms, measured), chunk))
    _, numbers, chunk = min(fits, key=lambda each: each[0])
    return _lines(_Bytes.of(file), numbers, chunk)


def _joint_fit(counted: Array, terms: Array, measured: Array) -> tuple[float, Array]:
    """Fit a largest-of-three by turns: which moment peaks in each row, then the numbers; loss first.

    `counted` is (moments, rows), `terms` (moments, rows, numbers).
    """
    rows = np.arange(len(measured))
    best = (np.inf, _START)
    for _ in range(_ROUNDS):
        moment = np.argmax(counted + terms @ best[1], axis=0)
        beside = np.maximum(measured - counted[moment, rows], _LEAST_MIB)
        # relative to the whole peak, not to what is beside the states
        numbers = relative_nnls(terms[moment, rows], beside, (beside / measured) ** 2)
        loss = float(np.abs(np.log((counted + terms @ numbers).max(axis=0) / measured)).mean())
        if loss >= best[0] - 1e-9:
            break
        best = (loss, numbers)
    return best


def _lines(held: _Bytes, numbers: Array, chunk: float) -> TrainingPeak:
    constant, table, kept, live = map(float, numbers)
    optimizer, logits, backward = held.standing()
    return TrainingPeak(
        optimizer + constant,
        logits + constant + table * held.table,
        held.logits_per_token,
        kept * held.kept_per_token,
        backward + constant,
        kept * held.kept_per_token + live * held.live_per_token,
        chunk,
    )
