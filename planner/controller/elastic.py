"""GPUs that may serve training or rollout of one task: how many, and when one replica changes over.

Only whole replicas change over, on GPUs of one node, and only where both roles have pools of their own.
One unit a look, at a step's end (A090); what is left after it must not call for the way back (N → N − 1).
Where the framework can add a replica, one joins on GPUs that nobody holds as soon as steps get shorter by it:
nobody will want these GPUs back, so no dead band is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import exactly
from libra_plan.models.topology import GpuId
from libra_plan.planner.configurations import configurations_of
from libra_plan.planner.controller.policy import ElasticPolicy, ElasticTask
from libra_plan.planner.plan import Configuration, PlacedRole, RoleChoice
from libra_plan.planner.problem import CouplingKind, IncumbentRole, IncumbentTask, Problem, StageOption, Task
from libra_plan.planner.telemetry.observations import RoleLoad

__all__ = ["ElasticPools", "Shift", "growth_of", "pools_of", "shift_of"]


@dataclass(frozen=True, slots=True)
class ElasticPools:
    """GPUs that always train, that always roll out, and those between, with the unit that changes over."""

    training_gpus: int
    rollout_gpus: int
    elastic_gpus: int
    unit_gpus: int


@dataclass(frozen=True, slots=True)
class Shift:
    """One unit that changes over: the new configuration and placement, and seconds of a step before and after."""

    task: str
    direction: str
    configuration: Configuration
    roles: tuple[PlacedRole, ...]
    before_s: float
    after_s: float
    switch_s: float
    why: str


@dataclass(frozen=True)
class _Pair:
    """A task's two elastic roles as they are now."""

    problem: Problem
    task: Task
    held: IncumbentTask
    training: IncumbentRole
    rollout: IncumbentRole

    @staticmethod
    def of(problem: Problem, held: IncumbentTask, spec: ElasticTask) -> _Pair | str:
        """Find the pair, or say why its GPUs cannot change over."""
        task = problem.task_of[held.task]
        roles = {role.role: role for role in held.roles}
        if spec.training not in roles or spec.rollout not in roles:
            return f"{task.id} has no roles {spec.training} and {spec.rollout}"
        pair = _Pair(problem, task, held, roles[spec.training], roles[spec.rollout])
        groups = [role.share_group for role in held.roles]
        if any(groups.count(role.share_group) > 1 for role in (pair.training, pair.rollout)):
            return f"{task.id}: {spec.training} or {spec.rollout} shares its GPUs with another role"
        if pair.training.mix or pair.rollout.mix or pair.unit % min(pair.sizes):
            return f"{task.id}: replicas of different sizes cannot change over"
        return pair

    @property
    def sizes(self) -> tuple[int, int]:
        """Give the GPUs of a replica of each role."""
        return self.training.layout.gpus_per_replica, self.rollout.layout.gpus_per_replica

    @property
    def unit(self) -> int:
        """Count the GPUs that change over at once."""
        return max(self.sizes)

    @property
    def total(self) -> int:
        """Count the GPUs of both."""
        return self.sizes[0] * len(self.training.replicas) + self.sizes[1] * len(self.rollout.replicas)

    def splits(self, spec: ElasticTask) -> Iterator[tuple[int, int]]:
        """List (training replicas, rollout replicas) that the GPUs can be split into, unit by unit."""
        one, two = self.unit // self.sizes[0], self.unit // self.sizes[1]
        now = (len(self.training.replicas), len(self.rollout.replicas))
        for steps in range(-now[0], now[1] + 1):
            training, rollout = now[0] + steps * one, now[1] - steps * two
            if training >= spec.least_training_replicas and rollout >= spec.least_rollout_replicas:
                yield training, rollout

    def configuration(self, training: int, rollout: int, bound: str = "value") -> Configuration | None:
        """Build the configuration of a split, the roles apart as now; with the rollout at one of its bounds."""
        wanted = {self.training.role: training, self.rollout.role: rollout}
        roles = []
        for role in self.task.roles:
            held = next((each for each in self.held.roles if each.role == role.id), None)
            if held is None:
                roles.append(role)
                continue
            option = _option(role.options, held.layout, wanted.get(role.id, len(held.replicas)))
            if option is None:
                return None
            if bound != "value" and role.id == self.rollout.role:
                option = replace(option, time_s=exactly(getattr(option.time_s, bound), "s"))
            roles.append(replace(role, options=(option,)))
        task = replace(self.task, roles=tuple(roles))
        found = configurations_of(task, self.problem.cluster, hosts_bind=False).configurations
        apart = [configuration for configuration in found if self._apart(configuration)]
        return min(apart, key=lambda configuration: configuration.step_time_s.value, default=None)

    def _apart(self, configuration: Configuration) -> bool:
        pools = [
            {choice.role for choice in pool.choices} for phase in configuration.phases for pool in phase.pools
        ]
        return {self.training.role} in pools and {self.rollout.role} in pools


def _option(options: tuple[StageOption, ...], layout: Layout, replicas: int) -> StageOption | None:
    found = (each for each in options if not each.mix and each.layout == layout and each.replicas == replicas)
    return next(found, None)


def pools_of(problem: Problem, held: IncumbentTask, spec: ElasticTask) -> ElasticPools | str:
    """Size core and elastic pools: what every rollout time within its bounds would split alike is core."""
    pair = _Pair.of(problem, held, spec)
    if isinstance(pair, str):
        return pair
    best = []
    for bound in ("low", "high"):
        known = [(split, pair.configuration(*split, bound)) for split in pair.splits(spec)]
        timed = [
            (configuration.step_time_s.value, split[0])
            for split, configuration in known
            if configuration is not None
        ]
        if not timed:
            return f"{held.task}: no split of its GPUs is priced"
        best.append(min(timed)[1] * pair.sizes[0])
    least, most = min(best), max(best)
    return ElasticPools(least, pair.total - most, most - least, pair.unit)


def shift_of(
    problem: Problem, held: IncumbentTask, policy: ElasticPolicy, loads: dict[tuple[str, str], RoleLoad]
) -> Shift | str | None:
    """Say which unit should change over now; a text says why none can, None that none need."""
    spec = policy.tasks[held.task]
    pair = _Pair.of(problem, held, spec)
    if isinstance(pair, str):
        return pair
    now = pair.configuration(len(pair.training.replicas), len(pair.rollout.replicas))
    if now is None:
        return f"{held.task}: its running form is not priced today"
    load = loads.get((held.task, spec.rollout))
    pressure = None if load is None else load.queue
    ratio = _ratio(now, spec)
    pressed = pressure is not None and pressure >= policy.pressure_up
    if pressed or ratio <= policy.ratio_down:
        if _stale(pair.task, load):
            return f"{held.task}: samples are as stale as allowed, so the rollout gets no more GPUs"
        return _towards(pair, spec, policy, now, pressure, to_training=False)
    if ratio >= policy.ratio_up:
        return _towards(pair, spec, policy, now, pressure, to_training=True)
    return None


def growth_of(problem: Problem, held: IncumbentTask, policy: ElasticPolicy) -> Shift | None:
    """Say which replica should join on GPUs that nobody holds; None where none can, or no step gets shorter.

    GPUs of a team with a quota are left to the solver, which knows what else the team runs.
    """
    spec = policy.tasks[held.task]
    pair = _Pair.of(problem, held, spec)
    if spec.join_s is None or isinstance(pair, str) or pair.task.team in {q.team for q in problem.quotas}:
        return None
    split = (len(pair.training.replicas), len(pair.rollout.replicas))
    now, best = pair.configuration(*split), None
    for giver, more in ((pair.training, (1, 0)), (pair.rollout, (0, 1))):
        gpus = _free_unit(pair, giver)
        configuration = None if gpus is None else pair.configuration(split[0] + more[0], split[1] + more[1])
        if gpus is None or configuration is None or now is None:
            continue
        before_s, after_s = now.step_time_s.value, configuration.step_time_s.value
        if after_s < (before_s if best is None else best.after_s):
            roles = _with(pair, configuration, {giver.role: (*giver.replicas, gpus)})
            why = f"{len(gpus)} GPUs that nobody holds join {giver.role}"
            way = "join-training" if giver is pair.training else "join-rollout"
            best = Shift(pair.task.id, way, configuration, roles, before_s, after_s, spec.join_s, why)
    return best


def _free_unit(pair: _Pair, role: IncumbentRole) -> tuple[GpuId, ...] | None:
    """Find the GPUs of one more replica, on the node with fewest that are enough."""
    problem = pair.problem
    taken = {gpu for held in problem.running for each in held.roles for gpus in each.replicas for gpu in gpus}
    spec = next(each for each in pair.task.roles if each.id == role.role)
    if spec.pinned_gpus:
        return None
    known = problem.cluster.gpus
    classes = {known[gpu].gpu_class for gpus in role.replicas for gpu in gpus if gpu in known}
    by_node: defaultdict[str, list[GpuId]] = defaultdict(list)
    for name, gpu in known.items():
        if name not in taken and name not in spec.excluded_gpus and gpu.gpu_class in classes:
            by_node[name.node].append(name)
    size = role.layout.gpus_per_replica
    fits = [sorted(gpus) for _, gpus in sorted(by_node.items()) if len(gpus) >= size]
    return tuple(min(fits, key=len)[:size]) if fits else None


def _stale(task: Task, load: RoleLoad | None) -> bool:
    """Tell whether samples are at the staleness bound: more rollout would only be thrown away (A035)."""
    if load is None or load.staleness is None or task.coupling.kind is not CouplingKind.ASYNC:
        return False
    return load.staleness >= task.coupling.staleness


def _ratio(configuration: Configuration, spec: ElasticTask) -> float:
    times = {
        c.role: c.option.time_s.value for p in configuration.phases for pool in p.pools for c in pool.choices
    }
    return times[spec.training] / times[spec.rollout]


def _towards(
    pair: _Pair,
    spec: ElasticTask,
    policy: ElasticPolicy,
    now: Configuration,
    pressure: float | None,
    *,
    to_training: bool,
) -> Shift | str | None:
    one, two = pair.unit // pair.sizes[0], pair.unit // pair.sizes[1]
    sign = 1 if to_training else -1
    split = (len(pair.training.replicas) + sign * one, len(pair.rollout.replicas) - sign * two)
    if split not in set(pair.splits(spec)):
        return None
    configuration = pair.configuration(*split)
    roles = None if configuration is None else _placed(pair, configuration, split, to_training)
    if configuration is None or roles is None:
        return (
            f"{pair.task.id}: the split {split[0]} + {split[1]} is not priced, or no node has a unit to give"
        )
    back = _ratio(configuration, spec)
    if to_training:
        left = pressure is not None and pressure * len(pair.rollout.replicas) / max(split[1], 1)
        if back <= policy.ratio_down or (left and left >= policy.pressure_up):
            return f"{pair.task.id}: after a shift to training the rollout would ask for the way back"
    elif back >= policy.ratio_up:
        return f"{pair.task.id}: after a shift to the rollout training would ask for the way back"
    return Shift(
        pair.task.id,
        "to-training" if to_training else "to-rollout",
        configuration,
        roles,
        now.step_time_s.value,
        configuration.step_time_s.value,
        spec.to_training_s if to_training else spec.to_rollout_s,
        f"training takes {_ratio(now, spec):.2f} × the rollout, {back:.2f} × after",
    )


def _placed(
    pair: _Pair, configuration: Configuration, split: tuple[int, int], to_training: bool
) -> tuple[PlacedRole, ...] | None:
    giver, taker = (pair.rollout, pair.training) if to_training else (pair.training, pair.rollout)
    freed = _unit_of(giver, pair.unit)
    if freed is None:
        return None
    gpus = sorted(gpu for replica in freed for gpu in replica)
    size = taker.layout.gpus_per_replica
    more = tuple(tuple(gpus[at : at + size]) for at in range(0, len(gpus), size))
    left = tuple(replica for replica in giver.replicas if replica not in freed)
    after = {giver.role: left, taker.role: (*taker.replicas, *more)}
    return _with(pair, configuration, after)


def _with(
    pair: _Pair, configuration: Configuration, after: dict[str, tuple[tuple[GpuId, ...], ...]]
) -> tuple[PlacedRole, ...]:
    """Place a task as it is, with other replicas of some roles."""
    choices = {c.role: c for phase in configuration.phases for pool in phase.pools for c in pool.choices}
    known = {role.role: role.replicas for role in pair.held.roles} | after
    order = pair.problem.cluster.order_of
    return tuple(
        PlacedRole(role.id, choices[role.id], _in_order(known[role.id], order, choices[role.id]))
        for role in pair.task.gpu_roles
    )


def _in_order(
    replicas: tuple[tuple[GpuId, ...], ...], order: dict[str, int], choice: RoleChoice
) -> tuple[tuple[GpuId, ...], ...]:
    if choice.option.mix:
        return replicas
    return tuple(sorted(replicas, key=lambda gpus: (order[gpus[0].node], gpus)))


def _unit_of(role: IncumbentRole, unit: int) -> list[tuple[GpuId, ...]] | None:
    """Take the last replicas of the last node that has a whole unit of them."""
    count = unit // role.layout.gpus_per_replica
    by_node: defaultdict[str, list[tuple[GpuId, ...]]] = defaultdict(list)
    for replica in role.replicas:
        if len({gpu.node for gpu in replica}) == 1:
            by_node[replica[0].node].append(replica)
    rich = [node for node, replicas in sorted(by_node.items()) if len(replicas) >= count]
    return by_node[rich[-1]][-count:] if rich else None
