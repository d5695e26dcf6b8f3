"""What a cost model is asked, and the affine decode step it gives to closed-form rollout times."""

from __future__ import annotations

from dataclasses import dataclass

from libra_plan.models.parallelism import Layout

__all__ = ["DecodeCoefficients", "Query"]


@dataclass(frozen=True, slots=True)
class Query:
    """Ask about one step: batch and length per data-parallel rank, layout, data-parallel ranks.

    decode: `batch_sequences` at context `seq_len_tokens`. serve: concurrency `batch_sequences` with
    `prompt_tokens`/`output_tokens`. score and train: `batch_sequences` × `seq_len_tokens`.
    `link_gib_per_s` is the bandwidth between data-parallel ranks, GiB/s each way per GPU; without it
    the profile's own links are taken.
    """

    batch_sequences: float
    seq_len_tokens: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    dp: int = 1
    link_gib_per_s: float | None = None

    @property
    def layout(self) -> Layout:
        """Give the layout of one replica."""
        return Layout(self.tp, self.pp, self.cp, self.ep)

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


@dataclass(frozen=True, slots=True)
class DecodeCoefficients:
    """A decode step as t(B, context) = fixed_s + per_sequence_s·B + per_token_s·B·context, seconds.

    `error` is the relative error that 90 % of the measured points stay within under this affine
    form; `per_prefill_s` (serve profiles only) is what prompt/output tokens in flight add per B.
    """

    fixed_s: float
    per_sequence_s: float
    per_token_s: float
    error: float
    per_prefill_s: float = 0.0
