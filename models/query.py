"""Queries to cost models, and the refusals of fitted profiles."""

from __future__ import annotations

from dataclasses import dataclass

from libra_plan.errors import RefusedError
from libra_plan.models.costs.base import LARGEST_SIZE, LEAST_SIZE, Place
from libra_plan.models.curves.curve import LEAST_POINTS, Curve
from libra_plan.models.parallelism import Layout

__all__ = [
    "Query",
    "does_not_fit",
    "incomplete",
    "no_layout",
    "no_memory",
    "outside",
    "ran_out_of_memory",
    "too_few",
    "unknown_link",
]


@dataclass(frozen=True, slots=True)
class Query:
    """A query about one step: batch and length per data-parallel rank, layout, data-parallel ranks.

    decode: `batch_sequences` at context `seq_len_tokens`. serve: concurrency `batch_sequences` with
    `prompt_tokens`/`output_tokens`. score and train: `batch_sequences` × `seq_len_tokens`.
    `link_gib_per_s` is the bandwidth between data-parallel ranks, GiB/s each way per GPU; without it
    the profile's own links are taken.
    """

    batch_sequences: float
    seq_len_tokens: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    layout: Layout = Layout()
    dp: int = 1
    link_gib_per_s: float | None = None

    def __str__(self) -> str:
        sizes = (
            ("batch", self.batch_sequences, ""),
            ("length", self.seq_len_tokens, " tokens"),
            ("prompt", self.prompt_tokens, " tokens"),
            ("output", self.output_tokens, " tokens"),
        )
        said = [f"{name} {value:g}{unit}" for name, value, unit in sizes if value is not None]
        ranks = [f"dp{self.dp}"] if self.dp > 1 else []
        return ", ".join([*said, str(self.layout), *ranks])


_MEASURE = "measure there with `libra-plan profile measure`"


def incomplete(name: str, query: Query, phase: str) -> RefusedError:
    """Refuse a question without its lengths, or with some that no step has."""
    needed = "prompt_tokens and output_tokens" if phase == "serve" else "seq_len_tokens"
    return RefusedError(
        f"{name}: the question is incomplete",
        got=str(query),
        allowed=f"batch_sequences and {needed}, from {LEAST_SIZE:g} to {LARGEST_SIZE:g}",
        way_out="state the missing or a possible size",
    )


def outside(name: str, query: Query, curve: Curve) -> RefusedError:
    """Refuse a place too far from the measured ones."""
    (low_batch, high_batch), (low_length, high_length) = curve.domain.box()
    return RefusedError(
        f"{name}: outside what was measured",
        got=str(query),
        allowed=(
            f"batch {2**low_batch:.0f} to {2**high_batch:.0f} and length {2**low_length:.0f} to"
            f" {2**high_length:.0f} tokens, in the hull of the measured points or one octave off on one axis"
        ),
        way_out=f"{_MEASURE}, or pass --allow-prior",
    )


def ran_out_of_memory(name: str, query: Query, failed: Place) -> RefusedError:
    """Refuse a size that was tried and failed, and all larger ones."""
    return RefusedError(
        f"{name} ran out of memory there",
        got=str(query),
        allowed=f"less than batch {failed[0]:g} at length {failed[1]:g}, which was tried and failed",
        way_out="take a smaller batch or length, or a layout with more GPUs",
    )


def no_layout(
    name: str, asked: Layout, measured: tuple[Layout, ...], what: str, prior: bool, faults: tuple[str, ...]
) -> RefusedError:
    """Refuse a layout that was not measured, or that the model cannot be split into."""
    return RefusedError(
        f"{name}: no {what} was measured for this layout",
        got="; ".join((str(asked), *faults)),
        allowed=f"measured layouts: {', '.join(map(str, measured)) or 'none'}",
        way_out=_MEASURE + (", or pass --allow-prior" if prior else ""),
    )


def too_few(name: str, layout: Layout, samples: int, what: str) -> RefusedError:
    """Refuse to fit fewer points than a form needs."""
    return RefusedError(
        f"{name}: too few points to fit its {what}",
        got=f"{samples} for {layout}",
        allowed=f"at least {LEAST_POINTS} places with {what} measured",
        way_out=_MEASURE,
    )


def no_memory(name: str, query: Query) -> RefusedError:
    """Refuse memory where only times were measured."""
    return RefusedError(
        f"{name}: no memory was measured",
        got=str(query),
        allowed="profiles with peak_reserved_mib, device_used_mib or peak_allocated_mib",
        way_out=f"{_MEASURE}, or pass --allow-prior",
    )


def unknown_link(name: str, query: Query, *, within_node: bool) -> RefusedError:
    """Refuse to price a collective over a link of unknown bandwidth."""
    key = f"{'intra' if within_node else 'inter'}_node_gib_per_s"
    return RefusedError(
        f"{name}: the bandwidth between data-parallel ranks is unknown",
        got=str(query),
        allowed="as many ranks as were measured, or a known bandwidth",
        way_out=f"state {key} in the profile's hardware or the cluster",
    )


def does_not_fit(name: str, query: Query, have_mib: float, need_mib: float) -> RefusedError:
    """Refuse a role of which not even one sequence fits."""
    return RefusedError(
        f"{name} does not fit in memory",
        got=f"{have_mib:.0f} MiB for {query}",
        allowed=f"at least {need_mib:.0f} MiB",
        way_out="give it a larger layout or GPU, or shorter sequences",
    )
