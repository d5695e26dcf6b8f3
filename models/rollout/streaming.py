"""What staleness costs rollouts that never drain: few trajectories may be on their way.

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

from dataclasses import dataclass
from typing import Any

import numpy as np

from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.rollout.makespan import Trajectories, token_work_s

__all__ = ["Stream", "least_step_s", "stream_of"]


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
