"""Batch steps of training roles: which one to propose, and which are in effect.

A step takes the next larger micro-batch whose upper bound of memory fits, with a reserve, beside what
others hold on the role's GPUs (`recommend_batch`), and states what share of the task's step it saves. It is
taken when enough looks in a row propose it; training loops read the file, and the next looks price the
workload with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from libra_plan.errors import LibraError, StateError, Where
from libra_plan.models.batch import recommend_batch, token_batch
from libra_plan.models.pricing.stages import TRAINING
from libra_plan.models.topology import GpuId
from libra_plan.planner.controller.configuration_values import relative_error
from libra_plan.planner.controller.escalation import RungResult
from libra_plan.planner.controller.estimators import option_of
from libra_plan.planner.controller.hysteresis import TrustPolicy, count_looks
from libra_plan.planner.controller.snapshot import Snapshot
from libra_plan.planner.controller.state import Decision, Rung
from libra_plan.planner.optimize.incumbent import held_configurations
from libra_plan.planner.problem import IncumbentRole, IncumbentTask, Problem
from libra_plan.planner.telemetry.observations import BatchStep
from libra_plan.profiles.document import shown
from libra_plan.profiles.durable import write_atomically
from libra_plan.profiles.schema import RoleSpec, TaskSpec, WorkloadFile

__all__ = ["BATCHES", "keep_steps", "proposed_steps", "step_batches", "steps_in_effect", "with_steps"]

BATCHES = "batch_steps.json"
"""Beside the manifest: each stepped setting, from what the workload says to what it is now."""
SETTING = "micro_batch_tokens"


def steps_in_effect(folder: Path) -> tuple[BatchStep, ...]:
    """Read the steps that were taken for the plan in a folder; none when there is no file."""
    path = folder / BATCHES
    if not path.exists():
        return ()
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[BatchStep, ...])
    except (msgspec.MsgspecError, OSError) as problem:
        raise StateError(
            "the batch steps in effect cannot be read",
            got=problem,
            allowed="the file as `replan` wrote it",
            way_out="remove it: tasks then count as running with what workload.yaml says",
            where=Where(shown(path)),
        ) from None


def keep_steps(folder: Path, taken: Iterable[BatchStep]) -> None:
    """Add the decided steps to the file of steps in effect, which training loops read."""
    steps = {(step.task, step.role, step.setting): step for step in steps_in_effect(folder)}
    for step in taken:
        key = (step.task, step.role, step.setting)
        goes_on = key in steps and steps[key].after == step.before
        first = steps[key].before if goes_on else step.before
        steps[key] = msgspec.structs.replace(step, before=first)
    data = [msgspec.to_builtins(step) for step in steps.values()]
    write_atomically(folder / BATCHES, (json.dumps(data, indent=2, allow_nan=False) + "\n").encode())


def with_steps(workload: WorkloadFile, steps: Iterable[BatchStep]) -> WorkloadFile:
    """Return the workload as it runs: a step holds as long as the file says what it began from."""
    for step in steps:
        roles = (role for task in workload.tasks if task.id == step.task for role in task.roles)
        role = next((role for role in roles if role.id == step.role), None)
        if role is not None and step.setting == SETTING and role.micro_batch_tokens == step.before:
            workload = _with_tokens(workload, step.task, step.role, int(step.after))
    return workload


def _with_tokens(workload: WorkloadFile, task_id: str, role_id: str, tokens: int) -> WorkloadFile:
    def changed(task: TaskSpec) -> TaskSpec:
        roles = (
            msgspec.structs.replace(role, micro_batch_tokens=tokens) if role.id == role_id else role
            for role in task.roles
        )
        return msgspec.structs.replace(task, roles=tuple(roles))

    tasks = (changed(task) if task.id == task_id else task for task in workload.tasks)
    return msgspec.structs.replace(workload, tasks=tuple(tasks))


def proposed_steps(
    problem: Problem,
    workload: WorkloadFile,
    available_mib: Mapping[GpuId, float],
    price: Callable[[WorkloadFile], Problem],
    trust: TrustPolicy,
) -> Iterator[BatchStep]:
    """Propose one step for each training role that has its GPUs to itself, where one fits and saves time.

    `available_mib` is what the role could have of each GPU; `price` prices a workload of one task.
    """
    joint = {task for sharing in problem.sharing for task in sharing.tasks}
    running = {held.task: held for held in problem.running if held.task not in joint}
    for spec in workload.tasks:
        held = running.get(spec.id)
        if held is None:
            continue
        alone = msgspec.structs.replace(workload, tasks=(spec,), sharing=())
        groups = [role.share_group for role in held.roles]
        for role in spec.roles:
            placed = next((each for each in held.roles if each.role == role.id), None)
            if placed is None or groups.count(placed.share_group) > 1:  # shared in turns
                continue
            least = [available_mib.get(gpu) for gpus in placed.replicas for gpu in gpus]
            known = [mib for mib in least if mib is not None]
            if known and len(known) == len(least):
                step = _step_of(role, placed, held, problem, alone, min(known), price, trust)
                if step is not None:
                    yield step


def _step_of(
    role: RoleSpec,
    placed: IncumbentRole,
    held: IncumbentTask,
    problem: Problem,
    alone: WorkloadFile,
    limit_mib: float,
    price: Callable[[WorkloadFile], Problem],
    trust: TrustPolicy,
) -> BatchStep | None:
    """Propose the next micro-batch of a role, or none."""
    tokens = role.micro_batch_tokens
    if role.kind not in TRAINING or tokens is None:
        return None
    priced: dict[int, Problem] = {tokens: problem}

    def need_mib(size: int) -> float:
        if size not in priced:
            priced[size] = price(_with_tokens(alone, held.task, role.id, size))
        return _need_mib(priced[size], held.task, placed)

    # Of the lengths it is enough to know that the longest fits in what runs; looks in a row are counted
    # by the rung that takes the step.
    state = replace(token_batch(tokens, tokens, 2 * tokens), patience=1)
    try:
        size = recommend_batch(state, need_mib=need_mib, limit_mib=limit_mib).size
    except LibraError:
        return None  # it does not fit as it runs, or cannot be priced
    if size <= tokens:
        return None
    saves = _saved_share(problem, priced[size], held, trust)
    return BatchStep(held.task, role.id, SETTING, float(tokens), float(size), saves) if saves > 0.0 else None


def _need_mib(problem: Problem, task: str, placed: IncumbentRole) -> float:
    """Bound the memory of a role as it is placed; infinite where that is not offered."""
    role = next((each for each in problem.task_of[task].gpu_roles if each.id == placed.role), None)
    if role is None:
        return math.inf
    option = option_of(role, placed, problem.cluster.gpus[placed.replicas[0][0]].gpu_class)
    return math.inf if option is None else option.peak_mib


def _saved_share(now: Problem, larger: Problem, held: IncumbentTask, trust: TrustPolicy) -> float:
    """Return the least share of a step that is saved, given the errors that the estimates do not share."""
    times = []
    for problem in (now, larger):
        configurations = held_configurations(problem, problem.task_of[held.task], held)
        if not configurations:
            return 0.0
        times.append(configurations[0].step_time_s)
    own_error = trust.confidence * math.sqrt(1.0 - trust.shared_error) * relative_error(times[1])
    return 1.0 - times[1].value / times[0].value * (1.0 + own_error)


def step_batches(snapshot: Snapshot) -> RungResult:
    """Step batch settings that fit and save enough on enough looks in a row; no GPUs move."""
    rule, before = snapshot.policy.rule, snapshot.state.batches
    runs = {(held.task, role.role) for held in snapshot.problem.running for role in held.roles}
    steps = {
        (step.task, f"batch:{step.role}:{step.setting}:{step.after:g}"): step
        for step in (snapshot.observed.batch_steps if snapshot.observed else ())
        if (step.task, step.role) in runs and rule.gain_up <= step.saves < 1.0
    }
    counted = count_looks(before, steps)
    others = tuple(each for each in before if not each.direction.startswith("batch:"))
    ripe = tuple(steps[each.task, each.direction] for each in counted if each.looks >= rule.looks_up)
    if not ripe:
        return RungResult(None, counted=(*others, *counted))
    said = ", ".join(f"{s.task}/{s.role} {s.setting} {s.before:g} → {s.after:g}" for s in ripe)
    why = f"{said}: saves at least {min(step.saves for step in ripe):.1%} of a step, and moves nothing"
    decision = Decision(Rung.BATCHES, "batches", why, batch_steps=ripe, running=snapshot.running)
    return RungResult(decision, counted=others)
