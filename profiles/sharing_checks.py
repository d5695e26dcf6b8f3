"""Check which tasks of a workload may share pools, and that they can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from libra_plan.profiles import wording
from libra_plan.profiles.place import Place
from libra_plan.profiles.schema import SharingSpec, TaskSpec, WorkloadFile

__all__ = ["check_sharing"]


def check_sharing(workload: WorkloadFile, place: Place) -> None:
    """Refuse a set of tasks that cannot share what it declares, with every reason."""
    tasks = {task.id: task for task in workload.tasks}
    for position, spec in enumerate(workload.sharing):
        here = place.at(f"sharing[{position}]")
        here.refuse_if(
            spec.kind == "engine",
            "`engine` sharing was removed: no launcher can start it",
            "kind",
            got="engine",
            allowed="turns",
            way_out="take this entry out of `sharing`",
        )
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
    if len(tasks) != 2:
        yield f"two tasks take turns, not {len(tasks)}"
    for task in tasks:
        yield from _of_task(task)


def _of_task(task: TaskSpec) -> Iterator[str]:
    """Yield what a task asks for alone: a joint configuration would ask it of the other task, too."""
    if task.coupling.kind != "sync":
        yield f"{task.id} is {task.coupling.kind}"
    if sum(role.kind != "env" for role in task.roles) < 2:
        yield f"{task.id} has one role on GPUs, so its pool is never free"
    if set(task.arrangements) == {"colocated"}:
        yield f"{task.id} allows no arrangement but colocated, and would be in two pools"
    if any(role.pinned_gpus or role.excluded_gpus for role in task.roles):
        yield f"{task.id} has pinned or excluded GPUs"
    for key in ("min_gpus", "deadline", "min_steps_per_hour", "latency_first"):
        if getattr(task, key):
            yield f"{task.id} has `{key}`"
