"""Which form, correction and groups each phase is fitted with.

Lengths (octaves) and noises of the corrections were chosen by leave-one-group-out error over the
shipped H200 profiles and public serving data; `benchmarks/cost_models.py` prints what they reach.
"""

from __future__ import annotations

from libra_plan.models.curve import Grouping, Recipe
from libra_plan.models.decode import fit_decode
from libra_plan.models.memory import fit_cache_memory, fit_chunk_memory
from libra_plan.models.score import fit_score
from libra_plan.models.serve import fit_serve
from libra_plan.models.train import fit_train
from libra_plan.profiles.schema import Phase

__all__ = ["MEMORY", "TIME"]

_BOTH = (Grouping.BATCH, Grouping.LENGTH)
# One batch of a score or train profile holds most of its lengths: leaving it out leaves no sweep.
_LENGTH = (Grouping.LENGTH,)

TIME: dict[Phase, Recipe] = {
    "decode": Recipe(fit_decode, length=10.0, noise=0.02, groupings=_BOTH),
    "serve": Recipe(fit_serve, length=4.0, noise=0.3, groupings=(Grouping.PLACE,)),
    "score": Recipe(fit_score, length=4.0, noise=0.02, groupings=_LENGTH),
    "train": Recipe(fit_train, length=10.0, noise=0.1, groupings=_LENGTH),
}
MEMORY: dict[Phase, Recipe] = {
    "decode": Recipe(fit_cache_memory, length=10.0, noise=0.1, groupings=_BOTH, one_sided=True),
    "serve": Recipe(fit_cache_memory, length=10.0, noise=0.1, groupings=(Grouping.PLACE,), one_sided=True),
    "score": Recipe(fit_chunk_memory, length=10.0, noise=0.1, groupings=_LENGTH, one_sided=True),
    "train": Recipe(fit_chunk_memory, length=10.0, noise=0.1, groupings=_LENGTH, one_sided=True),
}
