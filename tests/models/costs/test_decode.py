"""Decode and serving forms recover their own laws, and fold to affine steps at both ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from libra_plan.models.costs.base import places_of
from libra_plan.models.costs.decode import DecodeForm, ServeForm, fit_affine_decode, fit_decode, fit_serve

COEFFICIENT = st.floats(1e-6, 1e-2)
GRID = places_of([(b, c, 1.0) for b in (1.0, 4.0, 16.0, 64.0) for c in (512.0, 2048.0, 8192.0)])
REQUESTS = places_of(
    [(b, i, o) for b in (1.0, 8.0, 64.0) for i in (512.0, 4096.0) for o in (128.0, 512.0, 2048.0)]
)


def _refitted(form, fit, at):
    return fit(at, form.predict(at), np.ones(len(at))).predict(at)


def test_a_decode_law_is_recovered():
    """Four coefficients from twelve points without noise."""
    form = DecodeForm(5e-3, 4e-4, 2e-5, 3e-7)
    assert _refitted(form, fit_decode, GRID) == pytest.approx(form.predict(GRID), rel=1e-6)


def test_a_serving_law_is_recovered():
    """Prefill, prompt and output each have a share of their own."""
    form = ServeForm(8e-3, 2e-4, 1e-4, 1e-8, 2e-6)
    assert _refitted(form, fit_serve, REQUESTS) == pytest.approx(form.predict(REQUESTS), rel=1e-6)


def test_an_affine_law_needs_no_root():
    """Where √B has no part the affine fit is the law."""
    form = DecodeForm(5e-3, 0.0, 2e-5, 3e-7)
    assert _refitted(form, fit_affine_decode, GRID) == pytest.approx(form.predict(GRID), rel=1e-6)


@given(COEFFICIENT, COEFFICIENT, COEFFICIENT, st.floats(1, 16), st.floats(1.5, 64))
def test_the_affine_step_is_exact_at_both_ends_and_above_nowhere(fixed, root, each, least, times):
    """√B is concave: a straight line between two batches lies below it between them."""
    form = DecodeForm(fixed, root, each, 0.0)
    largest = least * times
    step = form.affine(least, largest, 0.1)
    for batch in (least, largest, (least + largest) / 2):
        exact = float(form.predict(places_of([(batch, 1.0, 1.0)]))[0])
        line = step.fixed_s + step.per_sequence_s * batch
        assert line <= exact * (1 + 1e-9)
        if batch in (least, largest):
            assert line == pytest.approx(exact, rel=1e-9)
    assert step.error == 0.1


def test_a_serving_step_keeps_its_prefill():
    """Prompts are charged apart from decoding, or rollouts would not pay for them."""
    step = ServeForm(8e-3, 2e-4, 1e-4, 1e-8, 2e-6).affine(1.0, 64.0, 0.05)
    assert (step.per_token_s, step.per_prefill_s) == (1e-8, 2e-6)
    assert step.scaled(0.5, 0.2).per_prefill_s == 1e-6


def test_other_forms_are_no_decode_step():
    """A training step has no affine decode step, and no floor under a decode step."""
    with pytest.raises(TypeError, match="no floor"):
        DecodeForm(1.0, 0.0, 0.0, 0.0).slowed(GRID, 1.0, 1.0)
