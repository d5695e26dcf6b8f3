"""Emit Slurm: one batch script per task that takes whole nodes, and the ranks' own scripts.

Slurm gives GPUs by number, and renumbers those of a job. On whole nodes the planner's numbers are
the job's, so the scripts set CUDA_VISIBLE_DEVICES themselves. Nodes with other roles or another
number of GPUs are further components of a heterogeneous job.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Annotated

from msgspec import Meta

from libra_plan.planner.launchers.agents import (
    Agent,
    AgentOptions,
    agent_reasons,
    agent_script,
    agents_of,
)
from libra_plan.planner.launchers.base import Ability, Emitter, TaskOptions
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, TaskEntry
from libra_plan.planner.launchers.shell import HERE_LINE, comments, script, words

__all__ = ["EMITTER"]

_EARLY_S = 60  # Slurm may send the signal this much early, and this is left for the end

Plain = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.,:-]*\Z")]


class SlurmOptions(TaskOptions, frozen=True, kw_only=True):
    """Where jobs go: `partition`, `account`, `qos`, `time` as sbatch has them; empty: its default."""

    partition: Plain = ""
    account: Plain = ""
    qos: Plain = ""
    time: Plain = ""
    shutdown_timeout: bool = False


class Slurm(Emitter[SlurmOptions]):
    """The Slurm emitter."""

    way_out = "solve with one task per node, or pick tasks"

    def reasons(self, picked: Manifest, whole: Manifest) -> Iterable[str]:
        """List why Slurm cannot start the tasks, beside those that are not picked."""
        yield from agent_reasons(picked, self._agent_options())
        yield from _reasons(picked, whole)

    def files(self, picked: Manifest) -> dict[str, str]:
        """Write `TASK/job.sbatch`, `submit.sh` and `TASK/ROLE/NODE.sh` for every agent."""
        agents = agents_of(picked, self._agent_options())
        files: dict[str, str] = {}
        for task in picked.spec.tasks:
            mine = [agent for agent in agents if agent.task == task.id]
            files[f"{task.id}/job.sbatch"] = _job(picked, task, mine, self.options)
            files[f"{task.id}/submit.sh"] = _submit(task)
            for agent in mine:
                title = f"{agent.task}/{agent.role} on {agent.node}"
                files[f"{task.id}/{agent.role}/{agent.node}.sh"] = agent_script(agent, title)
        return files

    def _agent_options(self) -> AgentOptions:
        return AgentOptions(shutdown_timeout=self.options.shutdown_timeout)


EMITTER = Slurm(
    "slurm",
    ("22.05.8", "26.11.0rc1 (manual pages)"),
    frozenset(Ability) - {Ability.TASK_GPUS, Ability.SEATS, Ability.JOINT_TURNS},
    SlurmOptions(),
)


def _used(task: TaskEntry) -> dict[str, frozenset[str]]:
    """Map the nodes of a task to the roles there."""
    found: dict[str, set[str]] = {}
    for role in task.roles:
        for node in [member.node for member in role.members] + [share.node for share in role.cpu]:
            found.setdefault(node, set()).add(role.id)
    return {node: frozenset(roles) for node, roles in found.items()}


def _reasons(picked: Manifest, whole: Manifest) -> Iterator[str]:
    """Check all tasks for those that share a node, including tasks that are not emitted."""
    holders: dict[str, list[str]] = {}
    for task in whole.spec.tasks:
        for name in _used(task):
            holders.setdefault(name, []).append(task.id)
    for task in picked.spec.tasks:
        if task.lifecycle.stop_signal == "SIGINT":
            yield f"{task.id}: its stop_signal is SIGINT, which srun answers and does not pass on"
    emitted = {task.id for task in picked.spec.tasks}
    for name, tasks in holders.items():
        if len(tasks) > 1 and emitted & set(tasks):
            yield f"{' and '.join(tasks)} share node {name}, and Slurm gives exact GPUs on whole nodes only"
    for node in picked.spec.nodes:
        indices = [gpu.index for gpu in node.gpus]
        if node.id in holders and indices != list(range(len(indices))):
            yield f"{node.id} has GPUs {indices}, and Slurm numbers a job's GPUs from 0"


def _components(manifest: Manifest, task: TaskEntry) -> list[list[NodeEntry]]:
    """Group a task's nodes by their roles and number of GPUs, in the order of the inventory."""
    used = _used(task)
    groups: dict[tuple[frozenset[str], int], list[NodeEntry]] = {}
    for node in manifest.spec.nodes:
        if node.id in used:
            groups.setdefault((used[node.id], len(node.gpus)), []).append(node)
    return list(groups.values())


def _directives(nodes: list[NodeEntry], options: SlurmOptions) -> Iterator[str]:
    yield f"--nodes={len(nodes)}"
    yield f"--nodelist={','.join(node.id for node in nodes)}"
    yield "--ntasks-per-node=1"
    yield "--exclusive"
    if nodes[0].gpus:
        yield f"--gpus-per-node={len(nodes[0].gpus)}"
    for name in ("partition", "account", "qos", "time"):
        if getattr(options, name):
            yield f"--{name}={getattr(options, name)}"


def _job(manifest: Manifest, task: TaskEntry, agents: list[Agent], options: SlurmOptions) -> str:
    grace = math.ceil(task.lifecycle.grace_s)
    groups = _components(manifest, task)
    heads = [f"--job-name={task.id}-g{task.generation}", "--requeue"]
    heads += [f"--signal=B:TERM@{grace + _EARLY_S}", "--open-mode=append"]
    lines = ["#!/bin/sh", *(f"#SBATCH {head}" for head in heads)]
    for number, nodes in enumerate(groups):
        lines += ["#SBATCH hetjob"] if number else []
        lines += [f"#SBATCH {directive}" for directive in _directives(nodes, options)]
    lines += comments(
        (
            f"Task {task.id}, generation {task.generation}, manifest {manifest.metadata.digest}.",
            "Submit with submit.sh. The batch shell passes SIGTERM on to all ranks, so that they save.",
        )
    )
    lines += ["set -u", "here=${LIBRA_PLAN_FOLDER:?submit with submit.sh}", 'pids=""', 'told=""']
    lines += ["trap 'told=yes' TERM"]  # until all ranks are there to be told
    lines += [_step(groups, agent) for agent in agents]
    stop = task.lifecycle.stop_signal.removeprefix("SIG")
    lines += [
        # Another name than below: the trap runs in the middle of that loop, and names are global in sh.
        f'stop() {{ for rank in $pids; do kill -{stop} "$rank" 2>/dev/null; done; }}',
        "trap stop TERM",
        '[ -z "$told" ] || stop',
        "status=0",
        # A trapped signal ends `wait` early; only a process that is gone is waited for no more.
        "for pid in $pids; do",
        "    while :; do",
        '        wait "$pid"; code=$?',
        '        kill -0 "$pid" 2>/dev/null || break',
        "    done",
        '    [ "$code" -eq 0 ] || status=$code',
        "done",
        'exit "$status"',
    ]
    return "\n".join(lines) + "\n"


def _step(groups: list[list[NodeEntry]], agent: Agent) -> str:
    group = next(
        number for number, nodes in enumerate(groups) if any(node.id == agent.node for node in nodes)
    )
    het = [f"--het-group={group}"] if len(groups) > 1 else []
    argv = ["srun", *het, "--nodes=1", f"--nodelist={agent.node}", "--ntasks=1", "--overlap"]
    return f'{words(argv)} sh "$here"/{words([f"{agent.role}/{agent.node}.sh"])} & pids="$pids $!"'


def _submit(task: TaskEntry) -> str:
    return script(
        (
            f"Submit task {task.id}, generation {task.generation}; its job number goes to job.id.",
            "With the number of the old generation's job it waits for that one's end: submit.sh [OLD].",
        ),
        (
            HERE_LINE,
            'export LIBRA_PLAN_FOLDER="$here"',
            'set -- ${1:+"--dependency=afterany:$1"}',
            'sbatch --parsable --export=ALL "$@" "$here/job.sbatch" > "$here/job.id"',
            'cat "$here/job.id"',
        ),
    )
