"""How many trajectories one rollout replica may run at once: measured domain, KV memory, user limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from libra_plan.errors import RefusedError
from libra_plan.models.fit import FittedProfile
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query

__all__ = ["Admission", "Frontier", "frontier_of"]

GRID_POINTS = 13  # over the six octaves of context that are usually measured: half an octave apart


@dataclass(frozen=True, slots=True)
class Admission:
    """What one replica may run at once: `sequences`, and `tokens` over their final contexts.

    Room for the final context is reserved on admission, so nothing is ever evicted. `reason` says
    in words which limit binds.
    """

    sequences: int
    tokens: float
    reason: str = "all at once"

    @property
    def context(self) -> float:
        """The context per sequence, tokens, at which both limits are reached."""
        return self.tokens / self.sequences


@dataclass(frozen=True, slots=True)
class Frontier:
    """The largest batch at each context, inside the measured domain and the memory given.

    `contexts` rise, tokens; `batches` hold the largest batch at each. Both the domain (a convex
    hull in logarithms) and KV memory (weights + k·batch·context) make log batch concave in log
    context, so a straight line between two points never promises too much.
    """

    contexts: tuple[float, ...]
    batches: tuple[int, ...]
    limit: str

    def admission(self, share: int, max_concurrency: int | None = None) -> Admission:
        """Return the limits for a replica with `share` trajectories.

        Any batch ≤ `sequences` whose contexts add up to ≤ `tokens` lies under the frontier.
        """
        most = max(self.batches)
        sequences = min(share, most if max_concurrency is None else min(most, max_concurrency))
        tokens = self._tokens(sequences)
        if sequences == share and tokens >= share * self.contexts[-1]:
            return Admission(sequences, tokens)
        if sequences == max_concurrency:
            return Admission(sequences, tokens, f"concurrency {sequences} per replica: max_concurrency")
        limit = f"{self.limit}, {tokens:.0f} tokens of context"
        return Admission(sequences, tokens, f"concurrency {sequences} per replica: {limit}")

    def _tokens(self, sequences: int) -> float:
        """Find the largest Σ contexts that any batch ≤ `sequences` may have.

        A batch n may reach the context c(n) where the frontier falls below n; n·c(n) is least at an
        end of one of the straight lines. The longest trajectory alone always fits.
        """
        pairs = list(zip(self.contexts, self.batches, strict=True))
        found = [sequences * self.contexts[-1]]
        for (low, above), (high, below) in pairwise(pairs):
            if below < min(above, sequences):
                for batch in (below + 1, min(above, sequences)):
                    share = math.log(above / batch) / math.log(above / below)
                    found.append(batch * low * (high / low) ** share)
        return max(min(found), self.contexts[-1])


def frontier_of(
    profile: FittedProfile,
    layout: Layout,
    *,
    memory_mib: float,
    shortest_context: float,
    longest_context: float,
    allow_prior: bool = False,
) -> Frontier:
    """Find the largest batches between two contexts, tokens, in `memory_mib` MiB per GPU.

    Raises RefusedError when the longest context is outside what was measured or does not fit.
    """
    shortest = min(shortest_context, longest_context)
    steps = range(GRID_POINTS - 1 if shortest < longest_context else 0)
    grid = [shortest * (longest_context / shortest) ** (step / (GRID_POINTS - 1)) for step in steps]
    *found, top = profile.max_batches([*grid, longest_context], memory_mib, layout, allow_prior=allow_prior)
    inside = profile.max_batch(longest_context, math.inf, layout, allow_prior=allow_prior)
    if isinstance(top, RefusedError):
        need = profile.memory_mib(Query(1.0, longest_context, layout=layout), allow_prior=allow_prior)
        raise RefusedError(
            f"{profile.profile.id} ({layout}): weights and a trajectory of {longest_context:.0f} tokens "
            "do not fit",
            got=f"{need.high:.0f} MiB needed per GPU",
            allowed=f"at most {memory_mib:.0f} MiB",
            way_out="split the model over more GPUs or shorten the responses; "
            "a higher memory utilization cannot help, as there is no room left to use",
        )
    # contexts shorter than measured are refused: the frontier begins at the next one
    known = [(at, each) for at, each in zip(grid, found, strict=True) if isinstance(each, int)]
    contexts, batches = (*(at for at, _ in known), longest_context), (*(each for _, each in known), top)
    return Frontier(contexts, batches, "KV memory" if top < inside else "measured domain")
