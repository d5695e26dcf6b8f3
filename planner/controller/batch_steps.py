"""Batch steps of training roles: which one to propose, and which are in effect.

A step takes the next larger micro-batch whose upper bound of memory fits with room to spare beside
what others hold on the role's GPUs (`recommend_batch`), and says what share of the task's step it
saves. The ladder takes it on enough looks in a row; training loops read the file. The next looks
price the workload with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from libra_plan.errors import LibraError, StateError, Where
from libra_plan.models.batch import recommend_batch, token_batch
from libra_plan.models.pricing.stages import TRAINING
from libra_plan.models.topology import GpuId
from libra_plan.planner.controller.configuration_values import Z90
from libra_plan.planner.controller.estimators import option_of
from libra_plan.planner.controller.policy import TrustPolicy
from libra_plan.planner.optimize.incumbent import held_configurations
from libra_plan.planner.problem import IncumbentRole, IncumbentTask, Problem
from libra_plan.planner.telemetry.observations import BatchStep
from libra_plan.profiles.document import shown
from libra_plan.profiles.durable import write_atomically
from libra_plan.profiles.schema import RoleSpec, TaskSpec, WorkloadFile

__all__ = ["BATCHES", "keep_steps", "proposed_steps", "steps_in_effect", "with_steps"]

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
    """Put steps that were decided beside those in effect, where training loops can read them."""
    steps = {_key(step): step for step in steps_in_effect(folder)}
    for step in taken:
        before = steps.get(_key(step))
        goes_on = before is not None and before.after == step.before
        first = before.before if before is not None and goes_on else step.before
        steps[_key(step)] = msgspec.structs.replace(step, before=first)
    told = [msgspec.to_builtins(step) for step in steps.values()]
    write_atomically(folder / BATCHES, (json.dumps(told, indent=2, allow_nan=False) + "\n").encode())


def _key(step: BatchStep) -> tuple[str, str, str]:
    return step.task, step.role, step.setting


def with_steps(workload: WorkloadFile, steps: Iterable[BatchStep]) -> WorkloadFile:
    """Give the workload as it runs: a step holds as long as the file says what it began from."""
    for step in steps:
        role = next(
            (r for t in workload.tasks if t.id == step.task for r in t.roles if r.id == step.role), None
        )
        if role is not None and step.setting == SETTING and role.micro_batch_tokens == step.before:
            workload = _with_tokens(workload, step.task, step.role, int(step.after))
    return workload


def _with_tokens(workload: WorkloadFile, task: str, role: str, tokens: int) -> WorkloadFile:
    def changed(spec: TaskSpec) -> TaskSpec:
        roles = tuple(
            msgspec.structs.replace(each, micro_batch_tokens=tokens) if each.id == role else each
            for each in spec.roles
        )
        return msgspec.structs.replace(spec, roles=roles)

    tasks = tuple(changed(each) if each.id == task else each for each in workload.tasks)
    return msgspec.structs.replace(workload, tasks=tasks)


def proposed_steps(
    problem: Problem,
    workload: WorkloadFile,
    rooms_mib: Mapping[GpuId, float],
    price: Callable[[WorkloadFile], Problem],
    trust: TrustPolicy,
) -> Iterator[BatchStep]:
    """Propose one step for each training role that has its GPUs to itself, where one fits and saves time.

    `rooms_mib` is what the role could have of each GPU; `price` prices a workload of one task.
    """
    joint = {task for sharing in problem.sharing for task in sharing.tasks}
    running = {held.task: held for held in problem.running if held.task not in joint}
    for spec in workload.tasks:
        if spec.id not in running:
            continue
        alone = msgspec.structs.replace(workload, tasks=(spec,), sharing=())
        site = _Site(problem, alone, running[spec.id], rooms_mib, price, trust)
        yield from filter(None, map(site.step, spec.roles))


@dataclass(frozen=True)
class _Site:
    """A running task, and what a larger micro-batch of one of its roles would mean for it."""

    problem: Problem
    workload: WorkloadFile  # of nothing but the task
    held: IncumbentTask
    rooms_mib: Mapping[GpuId, float]
    price: Callable[[WorkloadFile], Problem]
    trust: TrustPolicy

    def step(self, spec: RoleSpec) -> BatchStep | None:
        """Propose the next micro-batch of a role, or none."""
        tokens, room_mib = spec.micro_batch_tokens, self._room_mib(spec.id)
        if spec.kind not in TRAINING or tokens is None or room_mib is None:
            return None
        priced: dict[int, Problem] = {tokens: self.problem}

        def need_mib(size: int) -> float:
            if size not in priced:
                priced[size] = self.price(_with_tokens(self.workload, self.held.task, spec.id, size))
            return self._need_mib(priced[size], spec.id)

        # Of the lengths it is enough to know that the longest fits in what runs; looks in a row are the
        # ladder's to count.
        state = replace(token_batch(tokens, tokens, 2 * tokens), patience=1)
        try:
            advice = recommend_batch(state, need_mib=need_mib, limit_mib=room_mib)
        except LibraError:
            return None  # it does not fit as it runs, or cannot be priced: no step to propose
        if advice.size <= tokens:
            return None
        saves = self._saves(priced[advice.size])
        step = BatchStep(self.held.task, spec.id, SETTING, float(tokens), float(advice.size), saves)
        return step if saves > 0.0 else None

    def _room_mib(self, role: str) -> float | None:
        """Give the least room on any GPU of a role; None where others take turns there, or one is unknown."""
        found = self._held(role)
        if found is None or [each.share_group for each in self.held.roles].count(found.share_group) > 1:
            return None
        rooms = [self.rooms_mib.get(gpu) for gpus in found.replicas for gpu in gpus]
        known = [room for room in rooms if room is not None]
        return min(known) if known and len(known) == len(rooms) else None

    def _held(self, role: str) -> IncumbentRole | None:
        return next((each for each in self.held.roles if each.role == role), None)

    def _need_mib(self, problem: Problem, role: str) -> float:
        """Bound the memory of a role as it is placed; infinite where that is not offered."""
        found, task = self._held(role), problem.task_of[self.held.task]
        asked = next((each for each in task.gpu_roles if each.id == role), None)
        if found is None or asked is None:
            return math.inf
        gpu_class = problem.cluster.gpus[found.replicas[0][0]].gpu_class
        option = option_of(asked, found, gpu_class)
        return math.inf if option is None else option.peak_mib

    def _saves(self, larger: Problem) -> float:
        """Give the share of a step that is saved at least: less what the models do not have in common."""
        configurations = [
            held_configurations(problem, problem.task_of[self.held.task], self.held)
            for problem in (self.problem, larger)
        ]
        if not all(configurations):
            return 0.0
        now, then = (found[0].step_time_s for found in configurations)
        error = (then.high - then.low) / (2.0 * Z90 * then.value)
        doubt = self.trust.confidence * math.sqrt(1.0 - self.trust.shared_error) * error
        return 1.0 - then.value / now.value * (1.0 + doubt)
