"""The common base of the emitters of reinforcement-learning frameworks: from a task's parts to files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeVar

from libra_plan.planner.launchers.base import Ability, Emitter
from libra_plan.planner.launchers.manifest import DegreesEntry, Manifest, NodeEntry, TaskEntry
from libra_plan.planner.launchers.ray_cluster import RayOptions, ray_files, ray_reasons
from libra_plan.planner.launchers.role_mapping import RoleMapping, map_roles
from libra_plan.planner.launchers.shell import HERE_LINE, exports, script, words

__all__ = [
    "EXACT_GPUS",
    "HERE",
    "TASK_GPUS",
    "FrameworkEmitter",
    "Translation",
    "assignments",
    "head_first",
    "megatron_degrees",
    "placement_header",
]

HERE = "\0"  # stands for the folder of the script; no argument can hold it otherwise
EXACT_GPUS: Final = frozenset({Ability.GPU_IDS, Ability.MULTI_NODE, Ability.SHARED_GPUS, Ability.CPU_ROLES})
TASK_GPUS: Final = EXACT_GPUS - {Ability.GPU_IDS} | {Ability.TASK_GPUS}
_MEGATRON = {
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep",
}


@dataclass(frozen=True)
class Translation:
    """A task translated for a framework.

    `arguments` are added to the user's command; `files` are further files by name; `environment`
    is that of the driver, `node_environment` that of the nodes of the Ray cluster.
    """

    arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    node_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


RayGiven = TypeVar("RayGiven", bound=RayOptions)


@dataclass(frozen=True)
class FrameworkEmitter(Emitter[RayGiven]):
    """An emitter of a framework: one driver script a task, over a Ray cluster if `uses_ray`."""

    way_out: ClassVar[str] = (
        "solve with arrangements and layouts that avoid it, or pick tasks with --option tasks=NAME"
    )
    uses_ray: ClassVar[bool] = True
    least_cpus_per_gpu: ClassVar[int] = 1

    @abstractmethod
    def refuse(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Iterator[str]:
        """List what the framework cannot express of a task."""

    @abstractmethod
    def translate(self, roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> Translation:
        """Translate a task that the framework can express."""

    def reasons(self, picked: Manifest, whole: Manifest) -> Iterable[str]:
        """List what the framework cannot express, of all tasks at once."""
        reasons: list[str] = []
        for task in picked.spec.tasks:
            roles = map_roles(task, self.name, reasons)
            if roles is not None:
                reasons += self.refuse(roles, picked.spec.nodes_of(task))
                reasons += ray_reasons(picked, task, self.options) if self.uses_ray else ()
        return reasons

    def files(self, picked: Manifest) -> dict[str, str]:
        """Write `TASK/NAME.sh`, the framework's own files and the scripts of the task's Ray cluster."""
        files: dict[str, str] = {}
        for task in picked.spec.tasks:
            roles = map_roles(task, self.name, [])
            assert roles is not None
            said = self.translate(roles, picked.spec.nodes_of(task))
            files |= {f"{task.id}/{name}": text for name, text in said.files.items()}
            files[f"{task.id}/{self.name}.sh"] = self._driver(picked, roles, said)
            if self.uses_ray:
                files |= ray_files(
                    picked,
                    task,
                    self.options,
                    head=roles.actor.nodes[0],
                    least_cpus_per_gpu=self.least_cpus_per_gpu,
                    environment=said.node_environment,
                )
        return files

    def _driver(self, manifest: Manifest, roles: RoleMapping, said: Translation) -> str:
        """Write the script that runs the user's command with the placement added to it."""
        task = roles.task
        placed = [role for role in task.roles if role.members]
        notes = [
            f"Task {task.id}, generation {task.generation}, for {self.name} ({', '.join(self.versions)}).",
            f"Run on node {roles.actor.nodes[0]}: {self.name}.sh COMMAND ...; "
            "without a command it runs that of the workload.",
            "Placement only: model, data and algorithm stay in your own configuration.",
            *(
                f"{role.id}: "
                + ", ".join(f"{member.node} GPU {' '.join(map(str, member.gpus))}" for member in role.members)
                for role in placed
            ),
            *said.notes,
        ]
        body = [*exports(_identity(manifest, task)), *exports(said.environment), HERE_LINE, "export here"]
        commands = {role.command for role in placed if role.command}
        if len(commands) == 1:
            default = words(_runnable(commands.pop()))
            body += ['if [ "$#" -eq 0 ]; then', f"    set -- {default}", "fi"]
        else:
            body += ['if [ "$#" -eq 0 ]; then echo "usage: $0 COMMAND ..." >&2; exit 2; fi']
        start = 'exec sh "$here/ray/driver.sh" "$@"' if self.uses_ray else 'exec "$@"'
        body += [" \\\n    ".join((start, *map(_argument, said.arguments)))]
        return script(notes, body)


def _runnable(command: tuple[str, ...]) -> tuple[str, ...]:
    """Prepend Python to a script or module, as torchrun does."""
    return ("python3", *command) if command[0] == "-m" or command[0].endswith(".py") else command


def _argument(word: str) -> str:
    """Quote an argument; HERE in it stands for the folder of the script."""
    before, mark, after = word.partition(HERE)
    parts = [words([before]) if before else "", '"$here"', words([after]) if after else ""]
    return "".join(parts) if mark else words([word])


def _identity(manifest: Manifest, task: TaskEntry) -> dict[str, str]:
    identity = {
        "LIBRA_PLAN_TASK": task.id,
        "LIBRA_PLAN_GENERATION": str(task.generation),
        "LIBRA_PLAN_MANIFEST_DIGEST": manifest.metadata.digest,
        "LIBRA_PLAN_CHECKPOINT_DIR": task.lifecycle.checkpoint_dir,
    }
    return {key: value for key, value in identity.items() if value is not None}


def assignments(values: Mapping[str, object]) -> tuple[str, ...]:
    """Write `key=value` words."""
    return tuple(f"{key}={value}" for key, value in values.items())


def megatron_degrees(layout: DegreesEntry, home: str = "") -> dict[str, object]:
    """Map Megatron's names of the degrees, below `home`, to those of a layout."""
    return {f"{home}{key}": getattr(layout, name) for key, name in _MEGATRON.items()}


def placement_header(task: TaskEntry, framework: str) -> tuple[str, ...]:
    """Write the comment above a framework's own file."""
    return (f"Placement of task {task.id}, generation {task.generation}, for {framework}.",)


def head_first(roles: RoleMapping, nodes: tuple[NodeEntry, ...]) -> list[NodeEntry]:
    """Order nodes with that of the actor's rank 0 first."""
    return sorted(nodes, key=lambda node: node.id != roles.actor.nodes[0])
