"""Gradients that stand through a whole pass, where a profile measured steps that free them first.

A step of one micro-batch begins without gradients: by the time all of them exist, most activations
are gone. With accumulation every micro-batch but the first finds them there, and data-parallel ranks
keep them in the buckets they are reduced in. The pass then peaks higher by what a micro-batch alone
does not have yet at its peak: all gradients when that is the loss's, all but the input table's when
it is the backward pass's (`prior_memory.py`).

Measured on H200 at 16,384 tokens (`profiles/h200c-*` against `h200b-*`): all of them at 0.5B and
1.5B, whose tables are one, and 55 % of them at 7B, whose tables are two.
"""

from __future__ import annotations

from dataclasses import replace

from libra_plan.models.network import gradient_bytes
from libra_plan.models.parallelism import Layout
from libra_plan.models.priors.roofline import tables_of
from libra_plan.models.quantities import Estimate, Origin, weakest
from libra_plan.profiles.schema import ProfileFile
from libra_plan.profiles.units import MIB

__all__ = ["micro_batches_of", "with_held_gradients"]


def micro_batches_of(profile: ProfileFile) -> int:
    """Tell of how many micro-batches the measured steps were: the flag `micro_batches`, else 1."""
    said = profile.software.flags.get("micro_batches", 1)
    return said if isinstance(said, int) else 1


def with_held_gradients(
    profile: ProfileFile, layout: Layout, ranks: int, micro_batches: int, memory: Estimate
) -> Estimate:
    """Raise a training step's peak (MiB per GPU) by gradients that its profile did not see held.

    The bound takes all of them: in a short micro-batch the peak that was measured may be another one.
    Profiles that measured several micro-batches say so in their flag `micro_batches`.
    """
    if max(micro_batches, ranks) == 1 or micro_batches_of(profile) > 1:
        return memory
    model, software = profile.model, profile.software
    gradients = gradient_bytes(model, software, layout) / MIB
    if software.zero_stage >= 2:
        gradients /= ranks
    own_tables = tables_of(model) > 1 and software.lora_rank is None
    last = model.vocab * model.hidden / model.params if own_tables else 0.0
    origin = weakest(memory.origin, Origin.EXTRAPOLATED)
    value = memory.value + gradients * (1.0 - last)
    return replace(memory, value=value, high=memory.high + gradients, origin=origin)
