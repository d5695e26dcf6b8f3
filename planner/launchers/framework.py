"""What emitters of reinforcement-learning frameworks share: tasks to casts, casts to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from libra_plan.planner.launchers.base import Emitter, missing_abilities, refusal
from libra_plan.planner.launchers.manifest import Manifest, TaskEntry
from libra_plan.planner.launchers.ray_cluster import RayOptions, chosen, ray_files, ray_reasons
from libra_plan.planner.launchers.role_mapping import Cast, cast_of
from libra_plan.planner.launchers.shell import exports, script, words

__all__ = ["HERE", "FrameworkOptions", "Translation", "emit_framework"]

HERE = "\0"  # no argument can hold it otherwise

_WAY_OUT = "solve with arrangements and layouts that avoid it, or pick tasks with --option tasks=NAME"


class FrameworkOptions(RayOptions, frozen=True, kw_only=True):
    """Options of every framework: those of the task's Ray cluster."""


@dataclass(frozen=True)
class Translation:
    """A task as a framework says it.

    `arguments` are added to the user's command; `files` are further files by name; `environment`
    is that of the driver; the last four tell how the Ray cluster is started (`ray` false: none).
    """

    arguments: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    ray: bool = True
    least_cpus_per_gpu: int = 1
    node_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


Translate = Callable[[Manifest, Cast, list[str]], Translation]


def emit_framework(
    emitter: Emitter, manifest: Manifest, options: RayOptions, translate: Translate
) -> dict[str, str]:
    """Translate every task, or refuse with all reasons of all tasks at once.

    `translate` appends what it cannot say to the list it is given; its result is then not used.
    """
    picked = chosen(manifest, options.tasks)
    reasons = missing_abilities(emitter, picked)
    said: list[tuple[Cast, Translation]] = []
    for task in picked.spec.tasks:
        cast = cast_of(task, emitter.name, reasons)
        if cast is not None:
            said.append((cast, translate(picked, cast, reasons)))
            reasons += ray_reasons(picked, task, options) if said[-1][1].ray else ()
    if reasons:
        raise refusal(emitter.name, reasons, _WAY_OUT, emitter.abilities)
    files: dict[str, str] = {}
    for cast, translation in said:
        files |= _files(emitter, picked, cast, translation, options)
    return files


def _files(
    emitter: Emitter, manifest: Manifest, cast: Cast, translation: Translation, options: RayOptions
) -> dict[str, str]:
    task = cast.task
    head = cast.actor.members[0].node
    files = {f"{task.id}/{name}": text for name, text in translation.files.items()}
    files[f"{task.id}/{emitter.name}.sh"] = _driver(emitter, manifest, cast, translation)
    if translation.ray:
        files |= ray_files(
            manifest,
            task,
            options,
            head=head,
            least_cpus_per_gpu=translation.least_cpus_per_gpu,
            environment=translation.node_environment,
        )
    return files


def _driver(emitter: Emitter, manifest: Manifest, cast: Cast, translation: Translation) -> str:
    """Write the script that runs the user's command with the placement added to it."""
    task = cast.task
    notes = [
        f"Task {task.id}, generation {task.generation}, for {emitter.name} ({', '.join(emitter.versions)}).",
        f"Run on node {cast.actor.members[0].node}: {emitter.name}.sh COMMAND ...; "
        "without a command it runs that of the workload.",
        "Placement only: model, data and algorithm stay in your own configuration.",
        *_table(task),
        *translation.notes,
    ]
    commands = {role.command for role in task.roles if role.members and role.command}
    default = words(_runnable(commands.pop())) if len(commands) == 1 else ""
    body = [*exports(_identity(manifest, task)), *exports(translation.environment)]
    body += ['here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)', "export here"]
    if default:
        body += ['if [ "$#" -eq 0 ]; then', f"    set -- {default}", "fi"]
    else:
        body += ['if [ "$#" -eq 0 ]; then echo "usage: $0 COMMAND ..." >&2; exit 2; fi']
    start = 'exec sh "$here/ray/driver.sh" "$@"' if translation.ray else 'exec "$@"'
    arguments = [_argument(word) for word in translation.arguments]
    body += [" \\\n    ".join((start, *arguments))]
    return script(notes, body)


def _runnable(command: tuple[str, ...]) -> tuple[str, ...]:
    """Put Python before a script or module, as torchrun does."""
    return ("python3", *command) if command[0] == "-m" or command[0].endswith(".py") else command


def _argument(word: str) -> str:
    """Quote an argument; HERE in it stands for the folder of the script."""
    before, mark, after = word.partition(HERE)
    parts = [words([before]) if before else "", '"$here"', words([after]) if after else ""]
    return "".join(parts) if mark else words([word])


def _table(task: TaskEntry) -> list[str]:
    return [
        f"{role.id}: "
        + ", ".join(f"{member.node} GPU {' '.join(map(str, member.gpus))}" for member in role.members)
        for role in task.roles
        if role.members
    ]


def _identity(manifest: Manifest, task: TaskEntry) -> dict[str, str]:
    identity = {
        "LIBRA_PLAN_TASK": task.id,
        "LIBRA_PLAN_GENERATION": str(task.generation),
        "LIBRA_PLAN_MANIFEST_DIGEST": manifest.metadata.digest,
    }
    if task.lifecycle.checkpoint_dir is not None:
        identity["LIBRA_PLAN_CHECKPOINT_DIR"] = task.lifecycle.checkpoint_dir
    return identity
