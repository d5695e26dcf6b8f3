"""A run over time: GPUs held and GPUs at work, by task, in bins of time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from libra_plan.models.lengths import FloatArray
from libra_plan.planner.simulate.record import Record

__all__ = ["Band", "bins", "held", "used"]


@dataclass(frozen=True)
class Band:
    """Mean GPUs of a task in each bin. `part`: roles that hold them together, or the role that works."""

    task: str
    part: str
    gpus: FloatArray


def bins(record: Record, least_s: float, most: int = 240) -> FloatArray:
    """Give the edges of equal bins over the run, seconds: none shorter than `least_s`, not above `most`."""
    seconds = record.hours * 3600.0
    count = max(1, min(most, int(seconds / least_s + 1e-9)))
    return np.linspace(0.0, seconds, count + 1)


def held(record: Record, edges: FloatArray) -> list[Band]:
    """Give the GPUs that tasks held; roles that take the same ones in turn are one part."""
    rows: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for each in record.placements:
        for part, gpus in each.pools:
            rows.setdefault((each.task, part), []).append((each.from_s, each.to_s - each.from_s, gpus))
    return _in_order(record, (Band(*key, _means(edges, own)) for key, own in rows.items()))


def used(record: Record, edges: FloatArray) -> list[Band]:
    """Give the GPUs that were at work. The run must have kept its stages.

    Rollouts are known at every look of the run; between two looks they are spread evenly.
    """
    rows: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for each in record.stages:
        if each.seconds > 0.0:
            row = (each.begun_s, each.seconds, each.busy_gpu_s / each.seconds)
            rows.setdefault((each.task, each.role), []).append(row)
    found = [Band(*key, _means(edges, own)) for key, own in rows.items()]
    for task in dict.fromkeys(seen.task for seen in record.rollouts):
        own = [(seen.at_s, seen.busy_gpu_s) for seen in record.rollouts if seen.task == task]
        at, total = np.array([(0.0, 0.0), *own]).T
        work = np.maximum(np.diff(np.interp(edges, at, total)), 0.0)
        found.append(Band(task, "rollout", work / np.diff(edges)))
    return _in_order(record, found)


def _means(edges: FloatArray, rows: list[tuple[float, float, float]]) -> FloatArray:
    """Give the mean of what rows (begun s, seconds, GPUs) add up to in each bin."""
    begun, seconds, gpus = np.array(rows, dtype=np.float64).T
    until = np.array([float(np.clip(edge - begun, 0.0, seconds) @ gpus) for edge in edges])
    mean: FloatArray = np.diff(until) / np.diff(edges)
    return mean


def _in_order(record: Record, bands: Iterable[Band]) -> list[Band]:
    """Put tasks in the order they came, and the parts of each by name."""
    came = {task: number for number, task in enumerate(record.arrived_s)}
    return sorted(bands, key=lambda band: (came.get(band.task, len(came)), band.task, band.part))
