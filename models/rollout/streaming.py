"""The cost of a staleness bound for rollouts that never drain: it limits trajectories in flight.

Frameworks bound staleness where a trajectory begins: no more than (1 + η) steps' worth may have begun and
not yet been trained on (AReaL's staleness manager counts so; a trajectory that takes long is trained on when
it ends, however old it is by then). By Little's law a step's n trajectories, which take the mean latency L to
generate, wait half a step for their batch, and are held for `rest` seconds while the batch goes through the
other stages, need n·(L + T/2 + rest)/T of these places. A replica that runs N trajectories takes
L = latency + N·β each, with T = N-fold less, so that L = latency·T/(T − work): all of it together

    (T·(η + ½) − rest)·(T − work) = latency·T

whose larger root is the least T that staleness allows. Checked against the simulator in
tests/planner/simulate/test_stage_times.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.makespan import Trajectories, check_fits, token_work_s

__all__ = ["Stream", "continuous_s", "least_step_s", "stream_of"]


@dataclass(frozen=True, slots=True)
class Stream:
    """The two parts of a rollout that never drains: seconds a step, and seconds a trajectory.

    `work_s`: what the tokens of a step take, on all replicas, however many run at once. `latency_s`: what a
    mean trajectory takes besides, for the fixed cost of its decode steps and for its tools.
    """

    work_s: float
    latency_s: float

    def scaled(self, factor: float) -> Stream:
        """Return the same, slower by a factor."""
        return Stream(self.work_s * factor, self.latency_s * factor)


def stream_of(
    work: Trajectories, coefficients: DecodeCoefficients, replicas: int, prefill_s: float = 0.0
) -> Stream:
    """Return the two parts; `prefill_s` is the prefill of all trajectories together, seconds."""
    tokens_s = float(token_work_s(work, coefficients).sum())
    wait_s = work.turns * work.tool_wait_s
    return Stream(
        (tokens_s + prefill_s) / replicas,
        coefficients.fixed_s * float(work.response_tokens.mean()) + wait_s,
    )


def least_step_s(work_s: Any, latency_s: Any, rest_s: Any, staleness: int) -> Any:
    """Return the least seconds of a step under a bound on staleness; numbers or arrays of one shape.

    `rest_s` is what a batch takes from its last trajectory on until it is trained on.
    """
    most = staleness + 0.5
    half = (rest_s + most * work_s + latency_s) / (2.0 * most)
    return half + np.sqrt(np.maximum(half * half - rest_s * work_s / most, 0.0))


def continuous_s(
    work: Trajectories,
    coefficients: DecodeCoefficients,
    admission: Admission,
    replicas: int = 1,
    prefill_s: float = 0.0,
) -> float:
    """Return the seconds per step of replicas that never drain: total work ÷ steady rate.

    With N slots held all the time, B of them computing, a step takes t = a + B·(b + k·c) (c: mean
    context, weighted by length) and a slot is held L̄·t + wait per trajectory, so
    B = N·L̄·t/(L̄·t + wait) and the step's n trajectories take n·(L̄·t + wait)/(N·R). N is the least of
    the slots and the tokens over the mean final context a slot holds; that staleness may allow fewer on
    their way is told in `streaming.py`. Prefill seconds, over all trajectories, are shared evenly.
    """
    check_fits(work, replicas, admission)
    count, lengths = len(work), work.response_tokens.astype(float)
    mean_length = float(lengths.mean())
    held = float((work.final_context * lengths).sum() / lengths.sum())  # slots see lengths weighted by time
    slots = max(min(float(admission.sequences), admission.tokens / held), 1.0)
    per_sequence = float(token_work_s(work, coefficients).sum() / lengths.sum())  # b + k·c
    wait = work.turns * work.tool_wait_s
    step = _steady_step_s(coefficients.fixed_s, per_sequence, slots, mean_length, wait)
    return count * (mean_length * step + wait) / (slots * replicas) + prefill_s / replicas


def _steady_step_s(fixed: float, per_sequence: float, slots: float, length: float, wait: float) -> float:
    """Solve t = a + β·N·L·t/(L·t + w) for t ≥ 0: L·t² + (w − a·L − β·N·L)·t − a·w = 0."""
    if wait == 0.0:
        return fixed + per_sequence * slots
    linear = wait - fixed * length - per_sequence * slots * length
    root = math.sqrt(linear * linear + 4.0 * length * fixed * wait)
    # of the two equal forms, take the one that does not subtract near-equal numbers
    return (root - linear) / (2.0 * length) if linear < 0 else 2.0 * fixed * wait / (root + linear)
