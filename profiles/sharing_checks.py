"""Check which tasks of a workload may share pools, and that they can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from libra_plan.profiles import wording
from libra_plan.profiles.place import Place
from libra_plan.profiles.schema import RoleSpec, SharingSpec, TaskSpec, WorkloadFile
from libra_plan.profiles.tool_wait import tool_wait_of

__all__ = ["check_sharing", "rollout_of"]


def check_sharing(workload: WorkloadFile, place: Place) -> None:
    """Refuse a set of tasks that cannot share what it declares, with every reason."""
    tasks = {task.id: task for task in workload.tasks}
    for position, spec in enumerate(workload.sharing):
        here = place.at(f"sharing[{position}]")
        for number, name in enumerate(spec.tasks):
            here.refuse_if(
                name not in tasks,
                f"no task `{name}`",
                f"tasks[{number}]",
                allowed=wording.one_of(sorted(tasks)),
                way_out=wording.did_you_mean(name, tasks),
            )
        reasons = list(_reasons(spec, [tasks[name] for name in spec.tasks]))
        here.refuse_if(
            bool(reasons),
            f"{' and '.join(spec.tasks) or 'no tasks'} cannot share ({spec.kind})",
            got="; ".join(reasons),
            way_out="take what stands in the way out of the tasks, or this entry out of `sharing`",
        )


def _reasons(spec: SharingSpec, tasks: Sequence[TaskSpec]) -> Iterator[str]:
    if len(set(spec.tasks)) < 2 or len(set(spec.tasks)) < len(spec.tasks):
        yield "sharing takes two or more different tasks"
        return
    if spec.kind == "turns" and len(tasks) != 2:
        yield f"two tasks take turns, not {len(tasks)}"
    if len({task.coupling.kind for task in tasks}) > 1:
        yield "they couple their pools in different ways"
    for task in tasks:
        yield from _of_task(spec, task)
    if spec.kind == "engine":
        rollouts = [rollout_of(task) for task in tasks]
        if None not in rollouts:
            yield from _of_engine(tasks, [role for role in rollouts if role is not None])


def _of_task(spec: SharingSpec, task: TaskSpec) -> Iterator[str]:
    """Yield what a task asks for alone: a joint configuration would ask it of the other task, too."""
    turns = spec.kind == "turns"
    if task.coupling.kind == "pipelined" or (turns and task.coupling.kind != "sync"):
        yield f"{task.id} is {task.coupling.kind}"
    if turns and sum(role.kind != "env" for role in task.roles) < 2:
        yield f"{task.id} has one role on GPUs, so its pool is never free"
    if turns and set(task.arrangements) == {"colocated"}:
        yield f"{task.id} allows no arrangement but colocated, and would be in two pools"
    if not turns and rollout_of(task) is None:
        yield f"{task.id} has not exactly one rollout with `lora`"
    if any(role.pinned_gpus or role.excluded_gpus for role in task.roles):
        yield f"{task.id} has pinned or excluded GPUs"
    for key in (
        "min_gpus",
        "deadline",
        "min_steps_per_hour",
        "latency_first",
        *(() if turns else ("max_gpus",)),
    ):
        if getattr(task, key):
            yield f"{task.id} has `{key}`"


def rollout_of(task: TaskSpec) -> RoleSpec | None:
    """Return the rollout of a LoRA task; None unless it has exactly one, with an adapter."""
    rollouts = [role for role in task.roles if role.kind == "rollout"]
    return rollouts[0] if len(rollouts) == 1 and rollouts[0].lora is not None else None


def _of_engine(tasks: Sequence[TaskSpec], rollouts: Sequence[RoleSpec]) -> Iterator[str]:
    """Yield what one engine cannot do in two ways at once."""
    for key in ("profiles", "layouts", "max_concurrency", "can_sleep"):
        if len({getattr(role, key) for role in rollouts}) > 1:
            yield f"their rollouts differ in `{key}`"
    if any(role.mixed_layouts is not None for role in rollouts):
        yield "a rollout mixes layouts"
    if len({task.work_per_step.turns for task in tasks}) > 1:
        yield "their samples have different numbers of turns"
    if len({tool_wait_of(task.roles) for task in tasks}) > 1:
        yield "their tools keep a turn waiting for different times"
