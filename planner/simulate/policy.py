"""What a policy sees and decides: the one protocol behind which all policies are compared.

Beside the protocol stand the helpers that policies share: what is known of lengths, how GPUs are shared
between tasks, and the best plan in a part of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from libra_plan.models.length_forecast import LEAST_HISTORY, forecast_lengths
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin, exactly
from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import IncumbentRole, IncumbentTask, Problem
from libra_plan.planner.simulate.noisy_cost_model import NoisyCosts
from libra_plan.planner.simulate.world import World, world_cluster

__all__ = [
    "PARAMS",
    "AllocationPolicy",
    "FixedPlacement",
    "TaskView",
    "View",
    "best_in",
    "first_lengths",
    "forecast_at",
    "hold",
    "part_of",
    "recent_lengths",
    "shares",
    "split",
]

PARAMS = SolveParams(deterministic=True, time_limit_s=20.0, gap=1e-4)
_MOST_HISTORY = 40
_RECENT = 5


@dataclass(frozen=True)
class TaskView:
    """What a policy may know of a present task.

    `means`: mean response of each step done, tokens. `seen_s`: last seconds of each role's stage where they
    set the pace or were measured. `queue`: share of a step's trajectories that wait for a slot. `busy`: share
    of the GPU-seconds of each role since the last look that were used; missing where not held.
    """

    id: str
    steps_done: int
    steps_since_placed: int
    means: tuple[float, ...]
    seen_s: Mapping[str, float]
    queue: float | None
    busy: Mapping[str, float]


@dataclass(frozen=True)
class View:
    """The state in which a policy decides. `true` holds true prices, which only a clairvoyant may read.

    `cluster` is what works now, `broken` what tasks held that stopped because a GPU of theirs failed;
    `urgent`: something happened.
    """

    now_s: float
    world: World
    cluster: Cluster
    tasks: tuple[TaskView, ...]
    running: tuple[IncumbentTask, ...]
    broken: tuple[IncumbentTask, ...]
    estimated: NoisyCosts
    true: NoisyCosts
    urgent: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the tasks that are here."""
        return tuple(task.id for task in self.tasks)


class AllocationPolicy(Protocol):
    """Decides which task holds which GPUs."""

    @property
    def name(self) -> str:
        """The name it is compared under."""

    @property
    def moves_free(self) -> bool:
        """Whether its moves take no time."""

    @property
    def elastic(self) -> bool:
        """Whether its changes may leave replicas running."""

    def decide(self, view: View) -> tuple[IncumbentTask, ...] | None:
        """Return the wanted placements; None: everything stays. Tasks that are left out wait."""


# ------------------------------------------------------------ placements that are given


class FixedPlacement:
    """Keeps the placements it is given; a task that lost a GPU waits."""

    name = "fixed"
    elastic = True

    def __init__(self, *placed: IncumbentTask, moves_free: bool = True) -> None:
        self.placed, self.moves_free = placed, moves_free

    def decide(self, view: View) -> tuple[IncumbentTask, ...]:
        """Return the given placements of the tasks that are here and whose GPUs work."""
        alive = set(view.cluster.gpus)
        return tuple(
            held
            for held in self.placed
            if held.task in view.names
            and all(gpu in alive for role in held.roles for replica in role.replicas for gpu in replica)
        )


def hold(world: World, task: str, /, *, shared: bool = False, **replicas: Sequence[int]) -> IncumbentTask:
    """Place roles on the first GPUs: `rollout=[1, 1]` are two replicas of one GPU each.

    `shared`: all roles take the same GPUs in turn. A second task is placed from the other end.
    """
    gpus, at, roles = list(world_cluster(world).gpus), 0, []
    if task != world.tasks[0].id:
        gpus.reverse()
    for role, sizes in replicas.items():
        at = 0 if shared else at
        made = []
        for size in sizes:
            made.append(tuple(gpus[at : at + size]))
            at += size
        mix = tuple(Layout(tp=size) for size in sizes) if len(set(sizes)) > 1 else ()
        roles.append(IncumbentRole(role, Layout(tp=max(sizes)), tuple(made), "pool" if shared else role, mix))
    return IncumbentTask(task, tuple(roles))


# ------------------------------------------------------------ what is known of lengths


def first_lengths(view: View) -> dict[str, Estimate]:
    """Return the mean response lengths that tasks begin with, tokens."""
    return {name: _measured(view.world.task_of[name].responses.first_mean_tokens) for name in view.names}


def recent_lengths(view: View) -> dict[str, Estimate]:
    """Return the mean response lengths over the last steps; of a task without a step, that of its start."""
    found = first_lengths(view)
    for task in view.tasks:
        if task.means:
            last = task.means[-_RECENT:]
            found[task.id] = _measured(_below_half_cut(view, task.id, sum(last) / len(last)))
    return found


def forecast_at(view: View, ahead_s: float) -> dict[str, Estimate]:
    """Return the mean response lengths that `models/length_forecast.py` expects so many seconds ahead."""
    found = recent_lengths(view)
    for task in view.tasks:
        if len(task.means) < LEAST_HISTORY:
            continue
        known = task.means[-_MOST_HISTORY:]
        here_s = view.now_s - view.world.task_of[task.id].arrives_s
        step_s = max(1.0, here_s / max(1, task.steps_done))
        mean = forecast_lengths(known).at(max(0, min(len(known), round(ahead_s / step_s))))
        value = _below_half_cut(view, task.id, mean.value)
        low, high = min(value, mean.low), max(value, mean.high)
        found[task.id] = Estimate(value, low, high, "tokens", Origin.EXTRAPOLATED)
    return found


def _measured(tokens: float) -> Estimate:
    return exactly(tokens, "tokens", Origin.MEASURED)


def _below_half_cut(view: View, task: str, mean: float) -> float:
    """Keep a mean clearly below the cut: no law of lengths has a longer one."""
    return min(mean, 0.48 * view.world.task_of[task].responses.max_tokens)


# ------------------------------------------------------------ parts of the cluster


def part_of(cluster: Cluster, gpus: Iterable[GpuId]) -> Cluster:
    """Return the part of a cluster that has these GPUs."""
    wanted = frozenset(gpus)
    nodes = (
        replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.id in wanted)) for node in cluster.nodes
    )
    return replace(cluster, nodes=tuple(node for node in nodes if node.gpus))


def split(whole: Cluster, parts: Mapping[str, int]) -> dict[str, frozenset[GpuId]]:
    """Cut a cluster into parts of so many GPUs, one after the other along its nodes, largest part first."""
    gpus = list(whole.gpus)
    found, at = {}, 0
    for name in sorted(parts, key=lambda each: (-parts[each], each)):
        found[name] = frozenset(gpus[at : at + parts[name]])
        at += parts[name]
    return found


def shares(whole: Cluster, weights: Mapping[str, float]) -> dict[str, int]:
    """Share GPUs in proportion to weights; everybody gets at least one."""
    units, total = len(whole.gpus), sum(weights.values())
    exact = {name: units * weight / total for name, weight in weights.items()}
    found = {name: max(1, int(value)) for name, value in exact.items()}
    rest = sorted(exact, key=lambda name: (found[name] - exact[name], name))
    for name in rest:
        if sum(found.values()) < units:
            found[name] += 1
    while sum(found.values()) > units and max(found.values()) > 1:
        able = [name for name in found if found[name] > 1]
        found[max(able, key=lambda name: (found[name] - exact[name], name))] -= 1
    return found


def best_in(
    problem_on: Callable[[Cluster], Problem], cluster: Cluster, gpus: Iterable[GpuId]
) -> tuple[IncumbentTask, ...]:
    """Return the best placements of a problem on some GPUs of a cluster; () when nothing fits there."""
    part = part_of(cluster, gpus)
    if not part.nodes:
        return ()
    plan = solve_problem(problem_on(part), PARAMS).plan
    return () if plan is None else held_by(plan)
