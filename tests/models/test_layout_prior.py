from hypothesis import given
from hypothesis import strategies as st

from libra_plan.models.layout_prior import tensor_speedup

SIZE = st.sampled_from([1, 2, 4, 8, 16])


@given(SIZE, SIZE, st.booleans())
def test_more_gpus_are_faster_but_never_in_proportion(measured, asked, experts):
    """Assuming a speed-up of two per doubling would hand large layouts all GPUs."""
    speed = tensor_speedup(measured, asked, experts=experts)
    assert speed.least <= speed.likely <= speed.greatest
    if asked > measured:
        assert speed.least >= 1
        assert speed.greatest < asked / measured
    back = tensor_speedup(asked, measured, experts=experts)
    assert abs(back.likely * speed.likely - 1) < 1e-9
