"""`task add|remove|pause|resume|priority`: what users ask of the queue; the next look acts on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.replan_verbs import Folder, StateOption

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    help="Steer the queue of tasks; the next look acts on it.\n\n"
    "Example: libra-plan task pause eval-7b --run run/",
)

Name = Annotated[str, typer.Argument(help="Task.")]
Reason = Annotated[str, typer.Option(help="Why, for the record.")]


@app.command(help="Add the tasks of a workload file.\n\nExample: libra-plan task add urgent.yaml --run run/")
def add(
    file: Annotated[Path, typer.Argument(help="File like workload.yaml with the tasks to add.")],
    run: Folder = Path("run"),
    state: StateOption = None,
    reason: Reason = "",
) -> None:
    """Check the file, and put its tasks into the queue."""
    from libra_plan.planner.controller.replan import add_tasks

    for task in add_tasks(run, file, reason=reason, state=state):
        render.note(f"added: {task}")


@app.command(
    help="Remove a task: it is stopped and forgotten.\n\nExample: libra-plan task remove eval-7b --run run/"
)
def remove(task: Name, run: Folder = Path("run"), state: StateOption = None, reason: Reason = "") -> None:
    """Take a task out of the queue."""
    _change(task, "remove", run, state, reason)


@app.command(
    help="Pause a task once its checkpoint is safe.\n\nExample: libra-plan task pause eval-7b --run run/"
)
def pause(task: Name, run: Folder = Path("run"), state: StateOption = None, reason: Reason = "") -> None:
    """Ask for a pause."""
    _change(task, "pause", run, state, reason)


@app.command(
    help="Let a paused task wait for GPUs again.\n\nExample: libra-plan task resume eval-7b --run run/"
)
def resume(task: Name, run: Folder = Path("run"), state: StateOption = None, reason: Reason = "") -> None:
    """Take a pause back."""
    _change(task, "resume", run, state, reason)


@app.command(
    help="Set a task's weight or tier.\n\nExample: libra-plan task priority eval-7b --weight 4 --run run/"
)
def priority(
    task: Name,
    weight: Annotated[float | None, typer.Option(help="Weight in the objective.", min=1e-6, max=1e6)] = None,
    tier: Annotated[int | None, typer.Option(help="Tier under the policy `priority`.", min=0)] = None,
    run: Folder = Path("run"),
    state: StateOption = None,
    reason: Reason = "",
) -> None:
    """Change what a task counts."""
    _change(task, "priority", run, state, reason, weight, tier)


@app.command(
    "list", help="List what users asked of tasks.\n\nExample: libra-plan task list --run run/ --format json"
)
def list_(run: Folder = Path("run"), state: StateOption = None, form: FormOption = Form.TABLE) -> None:
    """List requests, and how long who waits."""
    from libra_plan.planner.controller.replan import list_tasks
    from libra_plan.planner.report.replan_text import queue_data, queue_text

    queue = list_tasks(run, state=state)
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
    from libra_plan.planner.controller.replan import change_task

    change_task(run, task, change, weight=weight, tier=tier, reason=reason, state=state)
    render.note(f"noted: {change} {task}; the next look acts on it")
