"""Turn the measured points of a profile into answers with bounds, or into a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate
from libra_plan.profiles.schema import Point, ProfileFile

__all__ = ["DecodeCoefficients", "FittedProfile", "Query", "fit_profile"]


@dataclass(frozen=True, slots=True)
class Query:
    """Ask about one step: batch and length per data-parallel rank, layout, data-parallel ranks.

    decode: `batch_sequences` at context `seq_len_tokens`. serve: concurrency `batch_sequences` with
    `prompt_tokens`/`output_tokens`. score and train: `batch_sequences` × `seq_len_tokens`.
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

    @property
    def layout(self) -> Layout:
        """Give the layout of one replica."""
        return Layout(self.tp, self.pp, self.cp, self.ep)


@dataclass(frozen=True, slots=True)
class DecodeCoefficients:
    """A decode step as t(B, context) = fixed_s + per_sequence_s·B + per_token_s·B·context, seconds.

    `error` is the relative error of this affine form that 90 % of the measured points stay within.
    """

    fixed_s: float
    per_sequence_s: float
    per_token_s: float
    error: float


@dataclass(frozen=True)
class FittedProfile:
    """A profile with its fitted forms."""

    profile: ProfileFile
    layouts: tuple[Layout, ...]

    def time_s(self, query: Query, *, allow_prior: bool = False) -> Estimate:
        """Estimate the seconds of one step (decode: one token of the whole batch)."""
        raise NotImplementedError

    def memory_mib(self, query: Query, *, allow_prior: bool = False) -> Estimate:
        """Estimate the peak reserved MiB per GPU; `.high` is the bound to plan with."""
        raise NotImplementedError

    def static_mib(self, layout: Layout = Layout(), *, allow_prior: bool = False) -> Estimate:
        """Estimate the MiB per GPU that stay while the role pauses with its state resident."""
        raise NotImplementedError

    def decode_coefficients(self, layout: Layout = Layout(), *, allow_prior: bool = False) -> DecodeCoefficients:
        """Give the affine decode form for closed-form rollout times."""
        raise NotImplementedError

    def max_batch(
        self, seq_len_tokens: float, memory_mib: float, layout: Layout = Layout(), *, allow_prior: bool = False
    ) -> int:
        """Find the largest batch inside the domain whose memory bound fits; refuse when none does."""
        raise NotImplementedError


def fit_profile(file: ProfileFile, points: Sequence[Point]) -> FittedProfile:
    """Fit every layout of a profile."""
    raise NotImplementedError
