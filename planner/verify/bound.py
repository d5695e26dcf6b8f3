"""The bound on every plan, recomputed from the certificate's dual prices and all ways to run each task.

For dual prices π ≥ 0 of constraints Σ use · chosen ≤ limit, and at most one way chosen for each task, no plan
has a larger objective than (LP duality; Geoffrion, Lagrangean relaxation, 1974)

    Σ limit · π  +  Σ over tasks of max(0, max over its ways of (value − use · π)).

The ways are enumerated here (`enumeration.py`), the limits are counted here (`blocks.py`); only the prices
are taken from the certificate, and wrong ones can only make the bound larger. A smaller bound, which a solver
found by branching, is recomputed by searching every combination of ways that could exceed it, where they are
few.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from math import isfinite

import numpy as np

from libra_plan.models.topology import GpuId
from libra_plan.planner.plan import MemoryMode, Plan
from libra_plan.planner.problem import LEAST_KEPT, IncumbentTask, Policy, Problem, StageOption, Task
from libra_plan.planner.verify.blocks import (
    Inventory,
    bins_needed,
    blocks_needed,
    gpus_in_blocks,
    replica_sizes,
)
from libra_plan.planner.verify.enumeration import (
    ROOM_MIB,
    Floats,
    Kind,
    Shape,
    TooManyWaysError,
    Ways,
    enumerate_ways,
    shapes_of,
)
from libra_plan.planner.verify.rules import Turn, configuration_peak_mib, step_times

__all__ = ["Choices", "Found", "Recomputed", "RunningNow", "Table", "best_within", "dual_bound", "one_better"]

MOST_NODES = 200_000  # of the search, about two seconds
_SAFETY = 1e-9


@dataclass(frozen=True)
class Choices:
    """The ways to run a task: `values[way]`, `normalised[way]` throughput and `uses[way, row]`.

    `must`: every plan that keeps the same deadlines runs it.
    """

    task: str
    values: Floats
    normalised: Floats
    uses: Floats
    must: bool


@dataclass(frozen=True, slots=True)
class RunningNow:
    """The running tasks with their GPUs, and the tasks that share GPUs with another one."""

    tasks: Mapping[str, IncumbentTask]
    sharing: frozenset[str]

    @classmethod
    def of(cls, problem: Problem) -> RunningNow:
        """Read what runs from the problem."""
        on_gpu: dict[GpuId, set[str]] = {}
        for each in problem.running:
            for gpu in (gpu for role in each.roles for replica in role.replicas for gpu in replica):
                on_gpu.setdefault(gpu, set()).add(each.task)
        several = [names for names in on_gpu.values() if len(names) > 1]
        return cls({each.task: each for each in problem.running}, frozenset().union(*several))


class Table:
    """The ways of all tasks of a problem; tasks that differ in name and weight alone are enumerated once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.inventory = Inventory(problem.cluster)
        self.rows = _rows(problem)
        self.limits = np.array([size * self.inventory.room(name, size) for name, size in self.rows], float)
        self._known: dict[Task, Ways | None] = {}
        self.now = RunningNow.of(problem)

    def ways(self, task: Task) -> Ways | None:
        """Return the ways to run a task on the empty cluster; None where they are too many to enumerate."""
        alike = replace(task, id="", weight=1.0, tier=0, team=None, deadline=None, waited_s=0.0)
        if alike not in self._known:
            try:
                self._known[alike] = enumerate_ways(self.inventory, task, self.rows)
            except TooManyWaysError:
                self._known[alike] = None
        return self._known[alike]

    def reference(self, task: Task) -> float | None:
        """Return the best rate on the task's weighted share of the GPUs, steps/s; None when it has no way.

        Under `priority` the weights are those of its tier. Raises TooManyWaysError.
        """
        ways = self.ways(task)
        if ways is None:
            raise TooManyWaysError
        return ways.best_rate(self._share(task))

    def _share(self, task: Task) -> float:
        weights = self._tier_weights
        return len(self.problem.cluster.gpus) * task.weight / weights[task.tier]

    @cached_property
    def _tier_weights(self) -> dict[int, float]:
        """The weights that a task of each tier shares the GPUs with: all, or under `priority` its tier's."""
        tiered = self.problem.policy is Policy.PRIORITY
        tasks = self.problem.tasks
        return {
            tier: sum(each.weight for each in tasks if not tiered or each.tier == tier)
            for tier in {task.tier for task in tasks}
        }

    def choices(self, task: Task, must_keep: float | None) -> Choices | None:
        """Return the ways to run a task with their values; None if they are not known.

        `must_keep` is the rate in steps/s that a plan which keeps its deadline has, when moved or not.
        """
        ways = self.ways(task)
        if ways is None:
            return None
        reference = ways.best_rate(self._share(task))
        if reference is None:
            return Choices(task.id, np.zeros(0), np.zeros(0), np.zeros((0, len(self.rows))), False)
        held = self.now.tasks.get(task.id)
        if held is not None:
            value = task.weight * max(LEAST_KEPT, 1.0 - task.restart_s / self.problem.horizon_s)
        else:
            aging = self.problem.aging_s
            value = task.weight * (1.0 + (task.waited_s / aging if aging else 0.0))
        seconds, uses = ways.seconds, ways.uses
        values = np.full(len(seconds), value)
        alone = held is not None and task.id not in self.now.sharing  # who shares GPUs starts anew
        keeping = _seconds_in_place(self.inventory, task, held) if held is not None and alone else None
        if held is not None and keeping is not None:
            gpus = sorted({gpu for role in held.roles for each in role.replicas for gpu in each})
            own = [float(self.inventory.use_of_gpus(gpus, *row)) for row in self.rows]
            seconds, uses = np.append(seconds, keeping), np.vstack([uses, own])
            values = np.append(values, task.weight)
        if must_keep:
            needed = np.full(len(seconds), must_keep)
            if held is not None and task.deadline is not None:  # a restart takes its part of the time
                left_s = task.deadline.within_s - task.restart_s
                moved = task.deadline.steps / left_s if left_s > 0 else np.inf
                needed[: len(ways.seconds)] = np.maximum(must_keep, moved)
            fast = seconds * needed <= 1.0 + 1e-9
            seconds, uses, values = seconds[fast], uses[fast], values[fast]
        normalised = 1.0 / (seconds * reference)
        return Choices(task.id, values * normalised, normalised, uses, bool(must_keep))

    def sure_to_place(self, choices: Sequence[Choices]) -> bool:
        """Return whether every choice within the rows can be placed: sizes divide, nothing else limits."""
        problem = self.problem
        roles = [role for task in problem.tasks for role in task.roles]
        plain = not (
            problem.running
            or problem.sharing
            or problem.budget_per_hour is not None
            or any(role.pinned_gpus or role.excluded_gpus or not role.on_gpu for role in roles)
            or any(role.cpu_cores_per_gpu or role.host_memory_mib_per_gpu for role in roles)
            or any(o.host_static_mib or o.offloaded_host_mib for role in roles for o in role.options)
        )
        return plain and not any(each.must for each in choices) and self._nested()

    def _nested(self) -> bool:
        for name, node in self.inventory.full_node_gpus.items():
            sizes = sorted({size for owner, size in self.rows if owner == name} | {node})
            if any(larger % smaller for smaller, larger in pairwise(sizes)):
                return False
        return True


def _rows(problem: Problem) -> list[Kind]:
    sizes = {
        (option.gpu_class, max(replica_sizes(option)))
        for task in problem.tasks
        for role in task.gpu_roles
        for option in role.options
    }
    return sorted(sizes | {(name, 1) for name in problem.cluster.gpu_classes})


# ---------------------------------------------------------------- what runs


def _seconds_in_place(inventory: Inventory, task: Task, held: IncumbentTask) -> float | None:
    """Return the least seconds of a step that the task may have on exactly the GPUs it is on."""
    now = {role.role: role for role in held.roles}
    gpus_of = {name: frozenset(g for each in role.replicas for g in each) for name, role in now.items()}
    everything = frozenset[GpuId]().union(*gpus_of.values())
    if set(now) != {role.id for role in task.gpu_roles} or not everything <= inventory.cluster.gpus.keys():
        return None
    options = [
        [
            option
            for option in role.options
            if sorted(option.layouts) == sorted(layout for layout, _ in now[role.id].placed)
            and bool(option.mix) == bool(now[role.id].mix)
            and {inventory.cluster.gpus[gpu].gpu_class for gpu in gpus_of[role.id]} == {option.gpu_class}
        ]
        for role in task.gpu_roles
    ]
    found = []
    for shape, picked in product(shapes_of(task), product(*options)):
        blocks = _blocks(inventory, shape, picked)
        least, most = max(task.min_gpus, len(everything)), task.max_gpus or len(inventory.cluster.gpus)
        if not least <= blocks.gpus <= most:
            continue
        if not _is_on(shape, [gpus_of[role.id] for role in task.gpu_roles], blocks.of_pools):
            continue
        if task.roles_fill_pools and any(
            picked[at].gpus != gpus
            for pool, gpus in zip(sum(shape, ()), blocks.of_pools, strict=True)
            for at in pool
        ):
            continue
        number = len(blocks.of_pools)
        alike = [(mode,) * number for mode in MemoryMode]  # phases share one mode
        for modes in product(MemoryMode, repeat=number) if len(shape) == 1 else alike:
            ways = _turns(task, shape, picked, modes)
            if _may(inventory, ways):
                found.append(step_times(task, ways)[0])
    return min(found, default=None)


@dataclass(frozen=True)
class _Blocks:
    """GPUs in the blocks of a whole configuration, and of each of its pools."""

    gpus: int
    of_pools: tuple[int, ...]


def _blocks(inventory: Inventory, shape: Shape, picked: Sequence[StageOption]) -> _Blocks:
    node = inventory.full_node_gpus[picked[0].gpu_class]
    sizes = [[max(max(replica_sizes(picked[at])) for at in pool) for pool in pools] for pools in shape]
    numbers = [
        [
            max(blocks_needed(node, picked[at], size) for at in pool)
            for pool, size in zip(pools, own, strict=True)
        ]
        for pools, own in zip(shape, sizes, strict=True)
    ]
    each = [[s * n for s, n in zip(*phase, strict=True)] for phase in zip(sizes, numbers, strict=True)]
    if len(shape) == 1:
        return _Blocks(sum(each[0]), tuple(each[0]))
    block = max(max(own) for own in sizes)
    items = [
        sorted(np.repeat(own, count).tolist(), reverse=True)
        for own, count in zip(sizes, numbers, strict=True)
    ]
    return _Blocks(
        block * max(bins_needed(tuple(each), block, node) for each in items),
        tuple(gpus for phase in each for gpus in phase),
    )


def _turns(
    task: Task, shape: Shape, picked: Sequence[StageOption], modes: Sequence[MemoryMode]
) -> list[list[Turn]]:
    mode = iter(modes)
    roles = task.gpu_roles
    return [
        [
            Turn(tuple(roles[at] for at in pool), tuple(picked[at] for at in pool), next(mode))
            for pool in pools
        ]
        for pools in shape
    ]


def _is_on(shape: Shape, gpus: Sequence[frozenset[GpuId]], of_pools: Sequence[int]) -> bool:
    """Whether the pools of each phase are on GPUs of their own, no more than their blocks have."""
    room = iter(of_pools)
    for pools in shape:
        each = [frozenset[GpuId]().union(*(gpus[at] for at in pool)) for pool in pools]
        if sum(map(len, each)) != len(frozenset[GpuId]().union(*each)):
            return False
        if any(len(own) > next(room) for own in each):
            return False
    return True


def _may(inventory: Inventory, ways: Sequence[Sequence[Turn]]) -> bool:
    turns = [turn for phase in ways for turn in phase]
    for turn in turns:
        alone = len(ways) == 1 and len(turn.options) == 1
        if not alone and any(option.stream for option in turn.options):
            return False
        if turn.mode is MemoryMode.SLEEP and (
            alone or any(option.sleep_s is None or option.wake_s is None for option in turn.options)
        ):
            return False
    memory = inventory.memory_mib
    if len(ways) > 1:
        return configuration_peak_mib(ways) <= memory[turns[0].options[0].gpu_class] + ROOM_MIB
    return all(configuration_peak_mib([[t]]) <= memory[t.options[0].gpu_class] + ROOM_MIB for t in turns)


# ---------------------------------------------------------------- the bound at dual prices


@dataclass(frozen=True)
class Recomputed:
    """The bound at the certificate's dual prices, with each task's part of it.

    `best[t]` is task t's part of the bound. It is `whole` when every constraint with a price is known here;
    leaving one out makes the bound larger, and no less true.
    """

    bound: float
    whole: bool
    choices: tuple[Choices, ...]
    prices: Floats
    best: Floats


def dual_bound(table: Table, tasks: Sequence[Task], plan: Plan) -> Recomputed | None:
    """Recompute the bound on the sum of values of some tasks, or under `max-min` on the least throughput.

    The least throughput is no more than any mean of throughputs, and the prices of `level:TASK` weigh one.
    A task that has no way to run is not among those whose least counts; a name no task has weighs nothing.
    Returns None where ways or values are not known, or the prices are so large that the sum is not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return _bound_at(table, tasks, plan)


def _bound_at(table: Table, tasks: Sequence[Task], plan: Plan) -> Recomputed | None:
    prices_by_name = {name: max(0.0, price) for name, price in plan.certificate.duals}
    least = table.problem.policy is Policy.MAX_MIN
    prices, fixed, known = _prices(table, prices_by_name)
    choices, best = [], []
    scale = 0.0 if least else 1.0
    for task in tasks:
        own = table.choices(task, _rate_kept(task, plan))
        if own is None or (own.must and not len(own.values)):
            return None
        if least:
            level = prices_by_name.get(f"level:{task.id}", 0.0) if len(own.values) else 0.0
            own = replace(own, values=own.normalised * level)
            scale += level
        reduced = own.values - own.uses @ prices
        most = float(reduced.max()) if len(reduced) else 0.0
        choices.append(own)
        best.append(most if own.must else max(0.0, most))
    if scale <= 0.0:
        return None
    bound = float(table.limits @ prices + fixed + sum(best)) / scale
    bound += _SAFETY * max(1.0, abs(bound))
    if not isfinite(bound):
        return None
    whole = not any(price for name, price in prices_by_name.items() if name not in known)
    return Recomputed(bound, whole, tuple(choices), prices, np.array(best))


def _prices(table: Table, prices_by_name: Mapping[str, float]) -> tuple[Floats, float, set[str]]:
    """Return the prices of the rows, what other limits add to the bound, and the names of all these.

    A budget makes every GPU of a class dearer by its cost. Deadlines limit the ways that tasks may take.
    """
    names = [f"gpus:{gpu_class}:{size}" for gpu_class, size in table.rows]
    prices = np.array([prices_by_name.get(name, 0.0) for name in names])
    known = {*names, *(name for name in prices_by_name if name.startswith(("level:", "deadline:")))}
    problem = table.problem
    cost = dict(problem.cluster.price_per_gpu_hour)
    if problem.budget_per_hour is None or not all(name in cost for name in problem.cluster.gpu_classes):
        return prices, 0.0, known
    money = prices_by_name.get("budget", 0.0)
    prices += [money * cost[gpu_class] * (size == 1) for gpu_class, size in table.rows]
    saved = sum(
        table.limits[at] * money * cost[gpu_class]
        for at, (gpu_class, size) in enumerate(table.rows)
        if size == 1
    )
    return prices, money * problem.budget_per_hour - saved, {*known, "budget"}


def _rate_kept(task: Task, plan: Plan) -> float | None:
    """Return the rate that every plan with the same deadlines kept gives the task, steps/s."""
    missed = {slack.task for slack in plan.certificate.deadlines}
    if task.id in missed or (task.deadline is None and not task.min_steps_per_s):
        return None
    asked = [task.min_steps_per_s or 0.0]
    if task.deadline is not None:
        asked.append(task.deadline.steps / task.deadline.within_s)
    return max(asked)


# ---------------------------------------------------------------- the search for something better


@dataclass
class Found:
    """The result of a search for a plan above a value: one, none, or too many combinations to examine."""

    value: float | None = None
    complete: bool = True


def best_within(table: Table, recomputed: Recomputed, above: float) -> Found:
    """Search every combination of ways with a value above `above` that keeps the rows."""
    order = np.argsort([-len(each.values) for each in recomputed.choices])
    search = _Search(
        [recomputed.choices[at] for at in order],
        recomputed.best[order],
        recomputed.prices,
        table.limits,
        window=recomputed.bound - above,
    )
    for value in search.run(0, 0.0, 0.0, np.zeros(len(table.limits))):
        if value > above:
            return Found(value, True)
    return Found(None, search.nodes < MOST_NODES)


@dataclass
class _Search:
    """Depth-first over tasks: what was lost against the dual bound so far must stay within the window."""

    choices: Sequence[Choices]
    best: Floats
    prices: Floats
    limits: Floats
    window: float
    nodes: int = 0
    _losses: list[tuple[Floats, Floats]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for own, best in zip(self.choices, self.best, strict=True):
            loss = best - (own.values - own.uses @ self.prices)
            near = np.argsort(loss, kind="stable")
            self._losses.append((near[loss[near] < self.window], loss))

    def run(self, at: int, lost: float, value: float, used: Floats) -> Iterator[float]:
        """Yield the values of whole combinations."""
        if at == len(self.choices):
            yield value
            return
        own, (near, loss) = self.choices[at], self._losses[at]
        for way in near:
            if lost + loss[way] >= self.window or self.nodes >= MOST_NODES:
                break
            self.nodes += 1
            then = used + own.uses[way]
            if (then <= self.limits + 1e-9).all():
                yield from self.run(at + 1, lost + loss[way], value + float(own.values[way]), then)
        if not own.must and lost + self.best[at] < self.window:
            yield from self.run(at + 1, lost + self.best[at], value, used)


def one_better(table: Table, recomputed: Recomputed, plan: Plan, values: Mapping[str, float]) -> float:
    """Return the most that the plan would gain if one task ran in another way on free GPUs; 0 if none gains.

    `values` maps running tasks to their value.
    """
    taken = {each.task: _uses(table, each.configuration.blocks) for each in plan.running}
    used = sum(taken.values(), np.zeros(len(table.limits)))
    gain = 0.0
    for own in recomputed.choices:
        free = table.limits - used + taken.get(own.task, 0.0)
        fits = (own.uses <= free + 1e-9).all(axis=1)
        if fits.any():
            gain = max(gain, float(own.values[fits].max()) - values.get(own.task, 0.0))
    return gain


def _uses(table: Table, blocks: Sequence[tuple[str, int, int]]) -> Floats:
    nodes = table.inventory.full_node_gpus
    return np.array(
        [
            sum(
                gpus_in_blocks(nodes[name], block, size) * number
                for name, block, number in blocks
                if name == owner
            )
            for owner, size in table.rows
        ],
        dtype=np.float64,
    )
