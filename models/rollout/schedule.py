"""Decode steps of replicas under in-order admission, for many steps of a task side by side.

A sequence starts when a slot and room for its final context are free, in order. Steps are drawn as arrays;
schedules of few rows go one by one over a heap.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from libra_plan.models.lengths import FloatArray
from libra_plan.models.rollout.admission import Admission

__all__ = ["dealt_rows", "decode_steps", "makespans_s", "slot_steps"]

_HEAP_ROWS = 8
"""So many schedules side by side are worth a call of numpy for every length; fewer go one by one."""


def dealt_rows(values: FloatArray, replicas: int) -> FloatArray:
    """Reshape rows to (steps, turns, replicas), padding the last turn with zeros."""
    steps, count = values.shape
    turns = -(-count // replicas)
    table = values
    if turns * replicas != count:
        table = np.zeros((steps, turns * replicas))
        table[:, :count] = values
    return table.reshape(steps, turns, replicas)


def _list_steps(lengths: FloatArray, contexts: FloatArray, admission: Admission) -> FloatArray:
    """Count decode steps under in-order admission, all replicas of all steps side by side."""
    shape = (lengths.shape[0], lengths.shape[2])
    turns = lengths.transpose(1, 0, 2).reshape(lengths.shape[1], -1)
    held = contexts.transpose(1, 0, 2).reshape(turns.shape)
    # a draw may be longer than anything priced: it then takes the whole cache
    held = np.minimum(held, admission.tokens)
    slots = min(admission.sequences, len(turns))
    if _only_slots_bind(held, slots, admission.tokens):
        return _by_slots(turns, slots).reshape(shape)
    if turns.shape[1] < _HEAP_ROWS:
        rows = zip(turns.T.tolist(), held.T.tolist(), strict=True)
        return np.array([decode_steps(*row, admission) for row in rows]).reshape(shape)
    return _by_tokens(turns, held, slots, admission.tokens).reshape(shape)


def _only_slots_bind(held: FloatArray, slots: int, tokens: float) -> bool:
    """Whether the largest contexts that can be held at once always have room."""
    if slots * float(held.max()) <= tokens:
        return True
    largest = np.partition(held, len(held) - slots, axis=0)[len(held) - slots :]
    return float(largest.sum(axis=0).max()) <= tokens


def _by_slots(turns: FloatArray, slots: int) -> FloatArray:
    """Assign each length to the slot that is free first; slots hold their end times. Returns (rows,)."""
    if turns.shape[1] < _HEAP_ROWS:
        return np.array([slot_steps(row.tolist(), slots) for row in turns.T])
    ends = turns[:slots].T.copy()
    flat, starts = ends.reshape(-1), np.arange(len(ends)) * slots
    for length in turns[slots:]:
        flat[starts + ends.argmin(axis=1)] += length
    last: FloatArray = ends.max(axis=1)
    return last


def _by_tokens(turns: FloatArray, held: FloatArray, slots: int, tokens: float) -> FloatArray:
    """Start each length when a slot and its context's tokens are free. Returns (rows,)."""
    rows = np.arange(turns.shape[1])
    ends = np.full((len(rows), slots), np.inf)  # inf: free
    kept = np.zeros_like(ends)
    now, used, last = np.zeros(len(rows)), np.zeros(len(rows)), np.zeros(len(rows))
    running = np.zeros(len(rows), dtype=np.int64)
    for length, context in zip(turns, held, strict=True):
        short = np.flatnonzero((running >= slots) | (used + context > tokens))
        while len(short):
            first = ends[short].argmin(axis=1)
            now[short] = ends[short, first]
            used[short] -= kept[short, first]
            ends[short, first] = np.inf
            running[short] -= 1
            short = short[used[short] + context[short] > tokens]
        free = ends.argmax(axis=1)
        ends[rows, free], kept[rows, free] = now + length, context
        used += context
        running += 1
        np.maximum(last, now + length, out=last)
    return last


def makespans_s(
    lengths: FloatArray,
    contexts: FloatArray,
    work_s: FloatArray,
    fixed_s: float,
    admission: Admission,
    replicas: int,
) -> FloatArray:
    """Return the seconds until the slowest replica is done, for many steps side by side, without tool waits.

    Arrays of shape (steps, trajectories), dealt round-robin: response lengths, final contexts, and seconds
    apart from the fixed cost of decode steps. Returns (steps,).
    """
    lengths, contexts = dealt_rows(lengths, replicas), dealt_rows(contexts, replicas)
    everything = float(contexts.sum(axis=1).max()) <= admission.tokens
    if lengths.shape[1] <= admission.sequences and everything:
        steps = lengths.max(axis=1)
    else:
        steps = _list_steps(lengths, contexts, admission)
    slowest: FloatArray = (fixed_s * steps + dealt_rows(work_s, replicas).sum(axis=1)).max(axis=1)
    return slowest


def decode_steps(lengths: Sequence[float], contexts: Sequence[float], admission: Admission) -> float:
    """Count the steps in which something runs, under in-order admission.

    `contexts` are final contexts; each must fit `admission.tokens` alone.
    """
    running: list[tuple[float, float]] = []
    now = last = used = 0.0
    for length, context in zip(lengths, contexts, strict=True):
        while running and (len(running) >= admission.sequences or used + context > admission.tokens):
            now, freed = heapq.heappop(running)
            used -= freed
        heapq.heappush(running, (now + length, context))
        used += context
        last = max(last, now + length)
    return last


def slot_steps(lengths: list[float], slots: int) -> float:
    """Count steps when only the number of slots limits admission (a faster `decode_steps`)."""
    ends = lengths[:slots]
    heapq.heapify(ends)
    replace_first = heapq.heapreplace
    for length in lengths[slots:]:
        replace_first(ends, ends[0] + length)
    return max(ends)
