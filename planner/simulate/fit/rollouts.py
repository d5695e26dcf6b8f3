"""Fit the costs of a rollout: the factor on the base's decode costs.

Two kinds of evidence. Windows that state sequences at once and mean context are decode steps: each is
compared with the base's law of a step. Whole rollout stages of sync steps are compared with what the engine
takes for the fitted work on the recorded replicas, at some lengths over the recording.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from libra_plan.errors import WorkloadError
from libra_plan.models.length_forecast import law_mean_tokens
from libra_plan.models.lengths import FloatArray
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.fit.evidence import (
    LEAST_STEPS,
    DecodeSeen,
    FitFindings,
    ReplicaSizes,
    StageSeen,
    TaskSeen,
    median_with_bounds,
    six_digits,
)
from libra_plan.planner.simulate.policy import FixedPlacement, hold
from libra_plan.planner.simulate.world import Costs, DecodeCosts, Drift, World, WorldTask

__all__ = ["fit_rollout", "rollout_engine_s"]

_KNOTS = 5
_TURNS = 20_000  # that are drawn in all
_LEAST_DRAWS, _MOST_DRAWS = 2, 50  # at each knot
_NEAR, _FAR = 0.01, 0.7  # ln of the longest mean ÷ the shortest
_TRIES = 8
_CLOSE = 0.005
_PROBE = 1.25
_WEAK = 0.1  # d ln(stage) ÷ d ln(decode) below which tool waits hide what decoding costs


def fit_rollout(world: World, task: WorldTask, seen: TaskSeen, found: FitFindings) -> tuple[DecodeCosts, ...]:
    """Return the base's decode costs, all multiplied alike."""
    key = f"{task.id}.costs.decode"
    known = {each.tp: each for each in task.costs.decode}
    if not known:
        return ()
    windows = [each for each in seen.decode if each.tp in known]
    if len(windows) >= LEAST_STEPS:
        ratios = [_step_ratio(known[each.tp], each, task) for each in windows]
        of = f"windows of {seen.source}"
        how = "seconds of a decode step ÷ the base's at these sequences and contexts; all tp alike"
        return _scaled(key, known, median_with_bounds(ratios), len(ratios), of, how, found)
    rows = [each for name in ("rollout", "generator") for each in seen.stages.get(name, ())]
    if task.coupling == "async" and task.rollouts == "stream":
        why = (
            "streams of an async task overlap with training: windows with sequences at once and mean context"
        )
        found.keep(key, f"{why} tell their costs; {len(windows)} were recorded, {LEAST_STEPS} are the least")
        return task.costs.decode
    rows = [row for row in rows if row.placed is not None]
    if len(rows) < LEAST_STEPS:
        found.keep(
            key,
            f"{len(rows)} rollout stages on known GPUs, {LEAST_STEPS} are the least (--placed tells GPUs)",
        )
        return task.costs.decode
    factor = _stage_factor(world, task, _able(rows, known, key))
    if factor is None:
        found.keep(key, "tool waits hide what decoding costs: rollouts hardly depend on it")
        return task.costs.decode
    how = "seconds of a rollout stage ÷ the simulated one with the base's costs; all tp alike"
    return _scaled(key, known, factor, len(rows), f"steps of {seen.source}", how, found)


def _scaled(
    key: str,
    known: dict[int, DecodeCosts],
    factor: tuple[float, float, float],
    count: int,
    of: str,
    how: str,
    found: FitFindings,
) -> tuple[DecodeCosts, ...]:
    value = factor[0]
    found.add(f"{key}: × the base's", value, count, of, how, span=(factor[1], factor[2]))
    found.keep(f"{key}: kv_tokens, max_sequences, shape", "only the speed as a whole was fitted")
    names = ("fixed_s", "per_sequence_s", "per_token_s", "prefill_s_per_token")
    return tuple(
        msgspec.structs.replace(each, **{name: six_digits(getattr(each, name) * value) for name in names})
        for each in known.values()
    )


def _step_ratio(costs: DecodeCosts, window: DecodeSeen, task: WorldTask) -> float:
    """Return recorded ÷ base seconds of a window: its decode steps and the prefill of what ended in it."""
    step_s = costs.fixed_s + window.sequences * (
        costs.per_sequence_s + costs.per_token_s * window.context_tokens
    )
    prefill_s = costs.prefill_s_per_token * law_mean_tokens(task.prompts) * (window.prompts or 0.0)
    return window.seconds / (window.tokens / window.sequences * step_s + prefill_s)


def _able(rows: list[StageSeen], known: dict[int, DecodeCosts], key: str) -> list[StageSeen]:
    for row in rows:
        for size in row.placed or ():
            if size not in known:
                raise WorkloadError(
                    "rollout replicas of a size that the base has no costs for",
                    got=f"{size} GPUs a replica",
                    allowed=f"tp {', '.join(map(str, sorted(known)))}",
                    way_out=f"add an entry of {key} for tp {size} to the base world, or correct --placed",
                )
    return rows


def _stage_factor(world: World, task: WorldTask, rows: list[StageSeen]) -> tuple[float, float, float] | None:
    """Find the factor at which half of the stages are longer than simulated; None: nothing tells.

    Without tools a stage is as many times as long as decoding, so that one comparison is enough. With tools
    the factor is searched by secants of ln(seen ÷ simulated) over ln factor.
    """
    middle, low, high = _median(world, task, rows, 1.0)
    if task.tools is None:
        return middle, low, high
    at, off = 0.0, math.log(middle)
    probe = math.log(_PROBE)
    slope = (off - math.log(_median(world, task, rows, _PROBE)[0])) / probe
    for _ in range(_TRIES):
        if slope < _WEAK:
            return None
        if abs(off) < _CLOSE * slope:
            around = [math.exp(at + (math.log(each) - off) / slope) for each in (low, high)]
            return math.exp(at), around[0], around[1]
        then = at + max(-2.0, min(2.0, off / slope))
        middle, low, high = _median(world, task, rows, math.exp(then))
        slope = (off - math.log(middle)) / (then - at)
        at, off = then, math.log(middle)
    return None


def _median(
    world: World, task: WorldTask, rows: list[StageSeen], factor: float
) -> tuple[float, float, float]:
    return median_with_bounds([seen / own for seen, own in _compared(world, task, rows, factor)])


def _compared(
    world: World, task: WorldTask, rows: list[StageSeen], factor: float
) -> list[tuple[float, float]]:
    """Return recorded and simulated seconds of every stage."""
    pairs = []
    for placed in dict.fromkeys(row.placed for row in rows if row.placed is not None):
        own = [row for row in rows if row.placed == placed]
        means = np.array([task.responses.mean_at(row.step) for row in own])
        drawn = _typical_s(world, task, placed, means, factor)
        pairs += [
            (row.seconds - row.wakes * task.costs.wake_s, float(seconds))
            for row, seconds in zip(own, drawn, strict=True)
        ]
    return [pair for pair in pairs if pair[0] > 0.0]


def _typical_s(
    world: World, task: WorldTask, placed: ReplicaSizes, means: FloatArray, factor: float
) -> FloatArray:
    """Return the median seconds of stages with these mean lengths.

    A stage depends on its longest trajectories, so one draw says little: many are drawn at several means,
    and a line is fitted through them in logarithms (a parabola where means are far apart).
    """
    draws = int(np.clip(_TURNS / (_KNOTS * task.samples * task.turns), _LEAST_DRAWS, _MOST_DRAWS))
    apart = math.log(means.max() / means.min())
    knots = np.geomspace(means.min(), means.max(), _KNOTS if apart > _NEAR else 1)
    lengths = np.repeat(knots, draws if len(knots) > 1 else draws * _KNOTS)
    times = [
        rollout_engine_s(world, task, placed, float(mean), seed, factor) for seed, mean in enumerate(lengths)
    ]
    if len(knots) == 1:
        return np.full(len(means), float(np.median(times)))
    line = np.polyfit(np.log(lengths), np.log(times), 1 if apart < _FAR else 2)
    off = np.median(np.log(times) - np.polyval(line, np.log(lengths)))
    found: FloatArray = np.exp(np.polyval(line, np.log(means)) + off)
    return found


def rollout_engine_s(
    world: World, task: WorldTask, placed: ReplicaSizes, mean_tokens: float, seed: int, factor: float = 1.0
) -> float:
    """Return the engine's seconds for the rollout of one sync step; `factor` multiplies decode costs."""
    law = task.responses
    decode = tuple(_slower(each, factor) for each in task.costs.decode)
    alone = msgspec.structs.replace(
        task,
        coupling="sync",
        staleness=0,
        rollouts="stream",
        arrangements=("separate",),
        responses=Drift(first_mean_tokens=mean_tokens, sigma=law.sigma, max_tokens=law.max_tokens),
        costs=Costs(decode=decode),
        arrives_s=0.0,
        steps=1,
    )
    site = msgspec.structs.replace(world.site, gpus=max(world.site.gpus, sum(placed)))
    room = msgspec.structs.replace(
        world, tasks=(alone,), site=site, failures=None, hours=10_000.0, look_s=1e8
    )
    return run_world(room, FixedPlacement(hold(room, task.id, rollout=placed)), seed).steps[0].at_s


def _slower(costs: DecodeCosts, factor: float) -> DecodeCosts:
    names = ("fixed_s", "per_sequence_s", "per_token_s", "prefill_s_per_token")
    return msgspec.structs.replace(costs, **{name: getattr(costs, name) * factor for name in names})
