"""GPUs that can serve training or rollout of one task: how many, and when one replica changes over.

Only whole replicas change over, on GPUs of one node, and only where both roles have pools of their own: one
unit per look, at the end of a step (A090), and only if the new split would not call for the opposite change.
Where the framework can add a replica, one joins on free GPUs as soon as that shortens the step: no other
task wants these GPUs back, so no dead band is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

from libra_plan.models.quantities import exactly
from libra_plan.models.topology import GpuId
from libra_plan.planner.configurations import configurations_of
from libra_plan.planner.controller.choose import certificate, kept_choice, place_choice
from libra_plan.planner.controller.configuration_values import configuration_values, prices_of
from libra_plan.planner.controller.escalation import RungResult, require_verified
from libra_plan.planner.controller.hysteresis import ElasticPolicy, ElasticTask, count_looks
from libra_plan.planner.controller.snapshot import Snapshot
from libra_plan.planner.controller.state import Decision, Move, Pending, Rung
from libra_plan.planner.plan import Configuration, PlacedRole, Plan, RunningTask
from libra_plan.planner.problem import CouplingKind, IncumbentRole, IncumbentTask, Problem, Task
from libra_plan.planner.telemetry.observations import RoleLoad
from libra_plan.planner.verify import violations_of

__all__ = ["ElasticPools", "elastic_pools", "shift_elastic"]

Replicas = tuple[tuple[GpuId, ...], ...]
Split = tuple[int, int]
"""Replicas of the training and of the rollout role."""


@dataclass(frozen=True, slots=True)
class ElasticPools:
    """GPUs that always train, that always roll out, and those between, with the unit that changes over."""

    training_gpus: int
    rollout_gpus: int
    elastic_gpus: int
    unit_gpus: int


@dataclass(frozen=True, slots=True)
class _Shift:
    """One unit that changes over: the new configuration and placement, and the step before and after."""

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
    spec: ElasticTask
    training: IncumbentRole
    rollout: IncumbentRole

    @staticmethod
    def of(problem: Problem, held: IncumbentTask, spec: ElasticTask) -> _Pair | None:
        """Return the pair; None when its GPUs cannot change over."""
        roles = {role.role: role for role in held.roles}
        if spec.training not in roles or spec.rollout not in roles:
            return None
        pair = _Pair(
            problem, problem.task_of[held.task], held, spec, roles[spec.training], roles[spec.rollout]
        )
        both, groups = (pair.training, pair.rollout), [role.share_group for role in held.roles]
        shared = any(groups.count(role.share_group) > 1 for role in both)
        if shared or any(role.mix for role in both) or pair.unit % min(pair.sizes):
            return None  # others take turns on these GPUs, or replicas differ in size
        return pair

    @property
    def sizes(self) -> Split:
        """Return the GPUs of a replica of each role."""
        return self.training.layout.gpus_per_replica, self.rollout.layout.gpus_per_replica

    @property
    def unit(self) -> int:
        """Return the number of GPUs that change over at once."""
        return max(self.sizes)

    @property
    def split(self) -> Split:
        """Return the replicas now."""
        return len(self.training.replicas), len(self.rollout.replicas)

    def moved(self, units: int) -> Split | None:
        """Return the split after units went to training (below 0: to the rollout); None: not allowed."""
        training = self.split[0] + units * (self.unit // self.sizes[0])
        rollout = self.split[1] - units * (self.unit // self.sizes[1])
        allowed = (
            training >= self.spec.least_training_replicas and rollout >= self.spec.least_rollout_replicas
        )
        return (training, rollout) if allowed else None

    def configuration(self, split: Split, bound: str = "value") -> Configuration | None:
        """Build the configuration of a split with separate roles, with the rollout's time at a bound."""
        wanted = {self.training.role: split[0], self.rollout.role: split[1]}
        roles = []
        for role in self.task.roles:
            held = next((each for each in self.held.roles if each.role == role.id), None)
            if held is None:
                roles.append(role)
                continue
            replicas = wanted.get(role.id, len(held.replicas))
            fits = (
                o for o in role.options if not o.mix and (o.layout, o.replicas) == (held.layout, replicas)
            )
            option = next(fits, None)
            if option is None:
                return None
            if role.id == self.rollout.role and bound != "value":
                option = replace(option, time_s=exactly(getattr(option.time_s, bound), "s"))
            roles.append(replace(role, options=(option,)))
        task = replace(self.task, roles=tuple(roles))
        found = configurations_of(task, self.problem.cluster, hosts_bind=False).configurations
        apart = (configuration for configuration in found if self._is_apart(configuration))
        return min(apart, key=lambda configuration: configuration.step_time_s.value, default=None)

    def _is_apart(self, configuration: Configuration) -> bool:
        pools = [{c.role for c in pool.choices} for phase in configuration.phases for pool in phase.pools]
        return {self.training.role} in pools and {self.rollout.role} in pools

    def ratio(self, configuration: Configuration) -> float:
        """Return the time of the training stage over that of the rollout."""
        choices = (c for phase in configuration.phases for pool in phase.pools for c in pool.choices)
        times = {choice.role: choice.option.time_s.value for choice in choices}
        return times[self.training.role] / times[self.rollout.role]

    def placed(self, configuration: Configuration, more: Mapping[str, Replicas]) -> tuple[PlacedRole, ...]:
        """Place the task as it is, with other replicas of some roles."""
        choices = {c.role: c for phase in configuration.phases for pool in phase.pools for c in pool.choices}
        known = {role.role: role.replicas for role in self.held.roles} | dict(more)
        order, placed = self.problem.cluster.order_of, []
        for role in self.task.gpu_roles:
            replicas, choice = known[role.id], choices[role.id]
            if not choice.option.mix:
                replicas = tuple(sorted(replicas, key=lambda gpus: (order[gpus[0].node], gpus)))
            placed.append(PlacedRole(role.id, choice, replicas))
        return tuple(placed)


def elastic_pools(problem: Problem, held: IncumbentTask, spec: ElasticTask) -> ElasticPools | None:
    """Return core and elastic pools; core GPUs have the same role at every rollout time within its bounds."""
    pair = _Pair.of(problem, held, spec)
    if pair is None:
        return None
    splits = [split for units in range(-pair.split[0], pair.split[1] + 1) if (split := pair.moved(units))]
    best = []
    for bound in ("low", "high"):
        configurations = [(pair.configuration(split, bound), split[0]) for split in splits]
        times = [(found.step_time_s.value, training) for found, training in configurations if found]
        if not times:
            return None
        best.append(min(times)[1] * pair.sizes[0])
    total = pair.sizes[0] * pair.split[0] + pair.sizes[1] * pair.split[1]
    return ElasticPools(min(best), total - max(best), max(best) - min(best), pair.unit)


# ---------------------------------------------------------------- which replica changes over, or joins


def _change_over(pair: _Pair, policy: ElasticPolicy, load: RoleLoad | None) -> _Shift | None:
    """Return the unit that should change over now; None when none need, or none can."""
    now = pair.configuration(pair.split)
    if now is None:
        return None
    pressure = None if load is None else load.queue
    ratio = pair.ratio(now)
    if ratio <= policy.ratio_down or (pressure is not None and pressure >= policy.pressure_up):
        to_training = False
        if _is_stale(pair.task, load):
            return None
    elif ratio >= policy.ratio_up:
        to_training = True
    else:
        return None
    split = pair.moved(1 if to_training else -1)
    after = None if split is None else pair.configuration(split)
    replicas = _changed_over(pair, to_training)
    if split is None or after is None or replicas is None:
        return None
    back = pair.ratio(after)
    if to_training:
        after_pressure = (pressure or 0.0) * pair.split[1] / max(split[1], 1)
        asks_back = back <= policy.ratio_down or 0.0 < after_pressure >= policy.pressure_up
    else:
        asks_back = back >= policy.ratio_up
    if asks_back:
        return None
    return _Shift(
        pair.task.id,
        "to-training" if to_training else "to-rollout",
        after,
        pair.placed(after, replicas),
        now.step_time_s.value,
        after.step_time_s.value,
        pair.spec.to_training_s if to_training else pair.spec.to_rollout_s,
        f"training takes {ratio:.2f} × the rollout, {back:.2f} × after",
    )


def _is_stale(task: Task, load: RoleLoad | None) -> bool:
    """Whether samples are as stale as allowed: more rollout would only be thrown away (A035)."""
    if load is None or load.staleness is None or task.coupling.kind is not CouplingKind.ASYNC:
        return False
    return load.staleness >= task.coupling.staleness


def _changed_over(pair: _Pair, to_training: bool) -> dict[str, Replicas] | None:
    """Return both roles' replicas after one unit, the last of the last node that has one, changed over."""
    giver, taker = (pair.rollout, pair.training) if to_training else (pair.training, pair.rollout)
    count, size = pair.unit // giver.layout.gpus_per_replica, taker.layout.gpus_per_replica
    by_node: defaultdict[str, list[tuple[GpuId, ...]]] = defaultdict(list)
    for replica in giver.replicas:
        if len({gpu.node for gpu in replica}) == 1:
            by_node[replica[0].node].append(replica)
    rich = [node for node, replicas in sorted(by_node.items()) if len(replicas) >= count]
    if not rich:
        return None
    freed = by_node[rich[-1]][-count:]
    gpus = sorted(gpu for replica in freed for gpu in replica)
    more = tuple(tuple(gpus[at : at + size]) for at in range(0, len(gpus), size))
    left = tuple(replica for replica in giver.replicas if replica not in freed)
    return {giver.role: left, taker.role: (*taker.replicas, *more)}


def _joining(pair: _Pair) -> _Shift | None:
    """Return the replica that should join on free GPUs; None when that would not shorten the step.

    GPUs of a team with a quota are left to the solver, which knows what else the team runs.
    """
    now, join_s = pair.configuration(pair.split), pair.spec.join_s
    if join_s is None or now is None or pair.task.team in {q.team for q in pair.problem.quotas}:
        return None
    best: _Shift | None = None
    for role, more, direction in (
        (pair.training, (1, 0), "join-training"),
        (pair.rollout, (0, 1), "join-rollout"),
    ):
        gpus = _free_gpus(pair, role)
        after = (
            None if gpus is None else pair.configuration((pair.split[0] + more[0], pair.split[1] + more[1]))
        )
        if gpus is None or after is None:
            continue
        before_s, after_s = now.step_time_s.value, after.step_time_s.value
        if after_s < (before_s if best is None else best.after_s):
            placed = pair.placed(after, {role.role: (*role.replicas, gpus)})
            why = f"{len(gpus)} GPUs that nobody holds join {role.role}"
            best = _Shift(pair.task.id, direction, after, placed, before_s, after_s, join_s, why)
    return best


def _free_gpus(pair: _Pair, role: IncumbentRole) -> tuple[GpuId, ...] | None:
    """Return GPUs for one more replica, on the node with the fewest that are enough."""
    known = pair.problem.cluster.gpus
    taken = {g for held in pair.problem.running for r in held.roles for gpus in r.replicas for g in gpus}
    spec = next(each for each in pair.task.roles if each.id == role.role)
    if spec.pinned_gpus:
        return None
    classes = {known[gpu].gpu_class for gpus in role.replicas for gpu in gpus if gpu in known}
    by_node: defaultdict[str, list[GpuId]] = defaultdict(list)
    for name, gpu in known.items():
        if name not in taken and name not in spec.excluded_gpus and gpu.gpu_class in classes:
            by_node[name.node].append(name)
    size = role.layout.gpus_per_replica
    fits = [sorted(gpus) for _, gpus in sorted(by_node.items()) if len(gpus) >= size]
    return tuple(min(fits, key=len)[:size]) if fits else None


# ---------------------------------------------------------------- the rung


def shift_elastic(snapshot: Snapshot) -> RungResult:
    """Change over or add one replica of one elastic task, if it pays on enough looks in a row."""
    policy, problem = snapshot.policy, snapshot.problem
    loads = {(each.task, each.role): each for each in (snapshot.observed.loads if snapshot.observed else ())}
    others = tuple(each for each in snapshot.state.batches if each.direction.startswith("batch:"))
    paying: dict[tuple[str, str], tuple[float, _Shift]] = {}
    for held in problem.running:
        spec = policy.elastic.tasks.get(held.task)
        pair = None if spec is None or _just_changed(snapshot, held.task) else _Pair.of(problem, held, spec)
        if pair is None:
            continue
        load = loads.get((held.task, pair.rollout.role))
        for shift in (_change_over(pair, policy.elastic, load), _joining(pair)):
            if shift is not None:
                net = 1.0 - shift.after_s / shift.before_s - shift.switch_s / problem.horizon_s
                if net >= policy.rule.gain_up:
                    paying[shift.task, shift.direction] = (net, shift)
    counted = count_looks(snapshot.state.batches, paying)
    ripe = [paying[c.task, c.direction] for c in counted if c.looks >= policy.rule.looks_up]
    if not ripe:
        return RungResult(None, counted=(*others, *counted))
    net, shift = max(ripe, key=lambda each: each[0])
    return _decided(snapshot, shift, net, others)


def _just_changed(snapshot: Snapshot, task: str) -> bool:
    clock, now = snapshot.state.clock_for(task), snapshot.state.clock.loop_s
    times = [since for since in (clock.shifted_s, clock.placed_s) if since is not None]
    return bool(times) and now - max(times) < snapshot.policy.stay.role_s


def _decided(snapshot: Snapshot, shift: _Shift, net: float, others: tuple[Pending, ...]) -> RungResult:
    """Decide for the shifted placement, charged with the cost of the shift."""
    tasks = (
        replace(t, restart_s=shift.switch_s) if t.id == shift.task else t for t in snapshot.problem.tasks
    )
    problem = replace(snapshot.problem, tasks=tuple(tasks))
    table = configuration_values(problem)
    prices = prices_of(table, dict(snapshot.state.prices))
    now = place_choice(table, kept_choice(table), prices, {})
    if now is None:
        return RungResult(None, counted=others)
    running = [_shifted(each, shift) if each.task == shift.task else each for each in now.running]
    plan = Plan(tuple(running), now.queued, certificate(table, running, prices))
    if shift.direction.startswith("join") and violations_of(problem, plan):
        return RungResult(
            None, counted=others
        )  # its node has no cores or memory left: the solver must place it
    require_verified(problem, plan)
    gpus = len(next(each for each in running if each.task == shift.task).gpus)
    value, move = _move(snapshot, shift, gpus)
    decision = Decision(
        Rung.ELASTIC,
        "elastic",
        f"{shift.task} {shift.direction}: {shift.why}; a step takes {shift.before_s:.4g} s, then "
        f"{shift.after_s:.4g} s",
        (move,),
        move.worth,
        value * net,
        move.cost,
        running=snapshot.running,
        plan=plan,
        notes=_pool_notes(snapshot, shift.task),
    )
    return RungResult(decision, counted=others, problem=problem)


def _shifted(task: RunningTask, shift: _Shift) -> RunningTask:
    """Return the running task in its shifted configuration."""
    faster = task.configuration.step_time_s.value / shift.configuration.step_time_s.value
    return replace(
        task,
        configuration=shift.configuration,
        roles=shift.roles,
        normalised=task.normalised * faster,
        moved=True,
    )


def _move(snapshot: Snapshot, shift: _Shift, gpus: int) -> tuple[float, Move]:
    """Return the task's present value, and the gain and cost of the shift to this number of GPUs."""
    task = next(each for each in snapshot.table.tasks if each.id == shift.task)
    value = 0.0 if task.kept is None else float(task.values[task.kept])
    factor = shift.before_s / shift.after_s
    cost = value * factor * shift.switch_s / snapshot.problem.horizon_s
    gain = value * (factor - 1.0)
    return value, Move(
        shift.task, "shift", task.held_gpus, gpus, gain, 0.0, cost, shift.switch_s, shift.direction
    )


def _pool_notes(snapshot: Snapshot, task: str) -> tuple[str, ...]:
    """Return how many GPUs of the task are core and how many elastic, where known."""
    held = next(each for each in snapshot.problem.running if each.task == task)
    pools = elastic_pools(snapshot.problem, held, snapshot.policy.elastic.tasks[task])
    if pools is None:
        return ()
    return (
        f"{task}: {pools.training_gpus} GPUs always train, {pools.rollout_gpus} always roll out, "
        f"{pools.elastic_gpus} are elastic in units of {pools.unit_gpus}",
    )
