"""`task add|remove|pause|resume|priority|list`: what users ask of the queue; the next look acts on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import libra_plan as lp
from libra_plan.cli import render
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.program import app
from libra_plan.cli.replan_verbs import Folder, StateOption

_task = typer.Typer(
    no_args_is_help=True,
    help="Steer the queue of tasks; the next look acts on it.\n\n"
    "Example: libra-plan task pause eval-7b --run run/",
)
app.add_typer(_task, name="task")

Name = Annotated[str, typer.Argument(help="Task.")]
Reason = Annotated[str, typer.Option(help="Why, for the record.")]

_ADD = "Add the tasks of a workload file.\n\nExample: libra-plan task add urgent.yaml --run run/"
_REMOVE = "Remove a task: it is stopped and forgotten.\n\nExample: libra-plan task remove eval-7b --run run/"
_PAUSE = "Pause a task once its checkpoint is safe.\n\nExample: libra-plan task pause eval-7b --run run/"
_RESUME = "Let a paused task wait for GPUs again.\n\nExample: libra-plan task resume eval-7b --run run/"
_PRIORITY = "Set a task's weight or tier.\n\nExample: libra-plan task priority eval-7b --weight 4 --run run/"
_LIST = "List the users' requests.\n\nExample: libra-plan task list --run run/ --format json"


@_task.command("add", help=_ADD)
def _add(
    file: Annotated[Path, typer.Argument(help="File like workload.yaml with the tasks to add.")],
    run: Folder = Path("run"),
    state: StateOption = None,
    reason: Reason = "",
) -> None:
    for task in lp.add_tasks(run, file, reason=reason, state=state):
        render.note(f"added: {task}")


@_task.command("remove", help=_REMOVE)
def _remove(task: Name, run: Folder = Path("run"), state: StateOption = None, reason: Reason = "") -> None:
    _change(task, "remove", run, state, reason)


@_task.command("pause", help=_PAUSE)
def _pause(task: Name, run: Folder = Path("run"), state: StateOption = None, reason: Reason = "") -> None:
    _change(task, "pause", run, state, reason)


@_task.command("resume", help=_RESUME)
def _resume(task: Name, run: Folder = Path("run"), state: StateOption = None, reason: Reason = "") -> None:
    _change(task, "resume", run, state, reason)


@_task.command("priority", help=_PRIORITY)
def _priority(
    task: Name,
    weight: Annotated[float | None, typer.Option(help="Weight in the objective.", min=1e-6, max=1e6)] = None,
    tier: Annotated[int | None, typer.Option(help="Tier under the policy `priority`.", min=0)] = None,
    run: Folder = Path("run"),
    state: StateOption = None,
    reason: Reason = "",
) -> None:
    _change(task, "priority", run, state, reason, weight, tier)


@_task.command("list", help=_LIST)
def _list(run: Folder = Path("run"), state: StateOption = None, form: FormOption = Form.TABLE) -> None:
    from libra_plan.planner.report.replan_text import queue_data, queue_text

    queue = lp.list_tasks(run, state=state)
    if form is not Form.TABLE:
        render.print_data(queue_data(queue), form.value)
    elif queue.asked or queue.waits_s:
        render.print_text(queue_text(queue))


def _change(
    task: str,
    change: str,
    run: Path,
    state: str | None,
    reason: str,
    weight: float | None = None,
    tier: int | None = None,
) -> None:
    lp.change_task(run, task, change, weight=weight, tier=tier, reason=reason, state=state)
    render.note(f"noted: {change} {task}; the next look acts on it")
