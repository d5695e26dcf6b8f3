"""A prefix tree of tool outcomes: how many tokens were still to come at each return, by what came before.

The idea is Libra's C-MLFQ (arXiv 2606.03077): a node is a prompt and the ordered states that its tools
returned; it keeps the mean and the 90th percentile of what was still to come. An unseen node answers with
its parent's.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["OutcomeTree", "Remaining"]

_ANY_PROMPT = ""
"""The key under which all prompts are kept together."""
_KEPT = 64
"""Values a node keeps, the newest: it follows drift, and its size is bounded."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """Tokens still to be generated: mean and 90th percentile of `seen` trajectories, `depth` states deep."""

    mean_tokens: float
    p90_tokens: float
    seen: int
    depth: int


@dataclass(slots=True)
class _Node:
    remaining: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    children: dict[str, _Node] = field(default_factory=dict)
    told: Remaining | None = None

    def add(self, tokens: float) -> None:
        self.remaining.append(tokens)
        self.told = None

    def tell(self, depth: int) -> Remaining:
        if self.told is None:
            values = sorted(self.remaining)
            p90 = values[math.ceil(0.9 * len(values)) - 1]
            self.told = Remaining(sum(values) / len(values), p90, len(values), depth)
        return self.told


class OutcomeTree:
    """Learn from trajectories that ended, and tell what is still to come of one under way.

    A node that fewer than `least_seen` trajectories passed counts as unseen. `any_prompt` also keeps all
    prompts together, and asks there where a prompt's own nodes do not reach as deep. States deeper than
    `depth` are not kept.
    """

    def __init__(self, *, least_seen: int = 3, any_prompt: bool = False, depth: int = 16) -> None:
        self.least_seen, self.any_prompt, self.depth = least_seen, any_prompt, depth
        self._all = _Node()
        self._prompts: dict[str, _Node] = {}

    def learn(self, prompt: str, states: Sequence[str], remaining_tokens: Sequence[float]) -> None:
        """Add a trajectory that ended.

        `remaining_tokens[j]` is what was still to come after the first j states; it begins with the whole.
        """
        self._all.add(remaining_tokens[0])
        roots = [self._prompts.setdefault(prompt, _Node())]
        if self.any_prompt:
            roots.append(self._prompts.setdefault(_ANY_PROMPT, _Node()))
        for node in roots:
            at = node
            at.add(remaining_tokens[0])
            for state, tokens in zip(states[: self.depth], remaining_tokens[1:], strict=False):
                at = at.children.setdefault(state, _Node())
                at.add(tokens)

    def look(self, prompt: str, states: Sequence[str]) -> Remaining | None:
        """Tell what is still to come after these states; None: nothing is known at all."""
        found = self._below(prompt, states)
        if self.any_prompt:
            common = self._below(_ANY_PROMPT, states)
            if found is None or (common is not None and common.depth > found.depth):
                found = common
        if found is None and len(self._all.remaining) >= self.least_seen:
            found = self._all.tell(0)
        return found

    def _below(self, prompt: str, states: Sequence[str]) -> Remaining | None:
        node, depth = self._prompts.get(prompt), 0
        if node is None or len(node.remaining) < self.least_seen:
            return None
        for state in states:
            child = node.children.get(state)
            if child is None or len(child.remaining) < self.least_seen:
                break
            node, depth = child, depth + 1
        return node.tell(depth)
