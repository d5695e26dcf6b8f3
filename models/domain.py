"""Where a fit may be asked: the convex hull of the measured places in log2 batch and log2 length."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

__all__ = ["SLACK", "Domain", "Step", "hull_of"]

SLACK = 1e-9
"""Octaves of rounding allowed at the edge."""


@dataclass(frozen=True, slots=True)
class Step:
    """The way back into the domain: `octaves` along one `axis` to the place `(x, y)`; 0 inside."""

    octaves: float
    axis: int
    place: tuple[float, float]


class Domain(msgspec.Struct, frozen=True):
    """A convex polygon, counter-clockwise, in log2 places; one or two corners when degenerate."""

    corners: tuple[tuple[float, float], ...]

    def contains(self, place: tuple[float, float]) -> bool:
        """Tell whether a log2 place lies in the hull (edges count)."""
        span = self.span(place[0], 0)
        return span is not None and span[0] - SLACK <= place[1] <= span[1] + SLACK

    def span(self, value: float, axis: int) -> tuple[float, float] | None:
        """Cut the hull where coordinate `axis` is `value`; gives the range of the other one."""
        cuts: list[float] = []
        for start, end in zip(self.corners, self.corners[1:] + self.corners[:1], strict=True):
            low, high = sorted((start, end), key=lambda corner: corner[axis])
            if not low[axis] - SLACK <= value <= high[axis] + SLACK:
                continue
            run = high[axis] - low[axis]
            if run <= SLACK:
                cuts += [low[1 - axis], high[1 - axis]]
                continue
            share = min(max((value - low[axis]) / run, 0.0), 1.0)
            cuts.append(low[1 - axis] + share * (high[1 - axis] - low[1 - axis]))
        return (min(cuts), max(cuts)) if cuts else None

    def step_back(self, place: tuple[float, float]) -> Step | None:
        """Find the shortest way into the hull along one axis; None when no single axis leads back."""
        steps: list[Step] = []
        for axis in (0, 1):
            span = self.span(place[1 - axis], 1 - axis)
            if span is None:
                continue
            nearest = min(max(place[axis], span[0]), span[1])
            back = (nearest, place[1]) if axis == 0 else (place[0], nearest)
            distance = abs(place[axis] - nearest)
            steps.append(Step(0.0 if distance <= SLACK else distance, axis, back))
        return min(steps, key=lambda step: step.octaves) if steps else None

    def clamp(self, place: tuple[float, float]) -> tuple[float, float]:
        """Bring a place into the hull: into the box of the hull, then back along the nearer axis."""
        (low_x, high_x), (low_y, high_y) = self.box()
        boxed = min(max(place[0], low_x), high_x), min(max(place[1], low_y), high_y)
        step = self.step_back(boxed)
        return boxed if step is None else step.place

    def box(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Give the least and greatest value of each axis."""
        first = [corner[0] for corner in self.corners]
        second = [corner[1] for corner in self.corners]
        return (min(first), max(first)), (min(second), max(second))


def hull_of(places: list[tuple[float, float]]) -> Domain:
    """Build the convex hull (Andrew's monotone chain); at least one place."""
    ordered = sorted(set(places))
    if len(ordered) == 1:
        return Domain((ordered[0],))
    lower, upper = _chain(ordered), _chain(ordered[::-1])
    return Domain(tuple(lower[:-1] + upper[:-1]))


def _chain(ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
    chain: list[tuple[float, float]] = []
    for place in ordered:
        while len(chain) > 1 and _turn(chain[-2], chain[-1], place) <= 0:
            chain.pop()
        chain.append(place)
    return chain


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
