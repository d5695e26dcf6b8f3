import numpy as np
import pytest

from libra_plan.models.costs.base import places_of
from libra_plan.models.costs.memory import CacheForm, ChunkForm, fit_cache_memory, fit_chunk_memory

PASSES = places_of([(1, 2.0**p, 1) for p in range(9, 16)] + [(b, 16384 / b, 1) for b in (2, 4, 8, 16, 32)])


@pytest.mark.parametrize("chunk", [1024.0, 2048.0, 4096.0, 8192.0])
def test_the_chunk_of_a_framework_is_found_from_the_points(chunk):
    """Memory rises steeply to the chunk and slowly beyond; a straight line misses by tens of percent."""
    law = ChunkForm(0.0, 4000.0, 1.4, 0.02, chunk)
    found = fit_chunk_memory(PASSES, law.predict(PASSES), np.ones(len(PASSES)))
    assert found.chunk_tokens == chunk
    assert found.predict(PASSES) == pytest.approx(law.predict(PASSES), rel=1e-3)


def test_a_standing_peak_is_joined_by_max_not_by_sum():
    """The optimizer's peak and the pass's peak are different moments; a sum under-predicts by 14 %."""
    law = ChunkForm(9300.0, 7700.0, 2.1, 0.1, 4096.0)
    found = fit_chunk_memory(PASSES, law.predict(PASSES), np.ones(len(PASSES)))
    assert found.standing_mib == pytest.approx(9300, rel=0.01)
    assert found.predict(PASSES) == pytest.approx(law.predict(PASSES), rel=0.01)


def test_the_cache_grows_with_batch_times_length():
    """The KV cache is what limits concurrency; its slope has to be exact."""
    at = places_of([(b, s, 1) for b in (1, 8, 64) for s in (512, 4096)])
    law = CacheForm(16000.0, 2.0, 0.05)
    found = fit_cache_memory(at, law.predict(at), np.ones(len(at)))
    assert found.per_token_mib == pytest.approx(0.05, rel=1e-6)


def test_a_served_sequence_ends_at_prompt_and_output():
    """The cache of a request is largest at its last token."""
    form = CacheForm(0.0, 0.0, 1.0)
    assert form.predict(places_of([(2, 100, 51)]))[0] == 2 * 150
