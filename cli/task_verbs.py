"""`task add|remove|pause|resume|priority`: what users ask of the queue; the next look acts on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from libra_plan.cli import render
from libra_plan.cli.flags import Form, FormOption
from libra_plan.cli.replan_verbs import Folder, StateOption, opened, require_folder
from libra_plan.errors import InputError

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
    from libra_plan.planner.controller.job_queue import add_tasks
    from libra_plan.profiles.catalog import load_workload

    workload, _ = load_workload(file)
    require_folder(run)
    with opened(run, state) as store:
        add_tasks(store, run, workload.tasks, _now_s(), reason)
    for task in workload.tasks:
        render.note(f"added: {task.id}")


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
    if weight is None and tier is None:
        raise InputError("nothing to set", allowed="--weight, --tier or both")
    _change(task, "priority", run, state, reason, weight, tier)


@app.command(
    "list", help="List what users asked of tasks.\n\nExample: libra-plan task list --run run/ --format json"
)
def list_(run: Folder = Path("run"), state: StateOption = None, form: FormOption = Form.TABLE) -> None:
    """List wishes, and how long who waits."""
    from dataclasses import asdict

    from libra_plan.planner.controller.job_queue import read_book, waits_of

    with opened(run, state, create=False) as store:
        rows, waits = read_book(store).rows, waits_of(store.state())
    if form is not Form.TABLE:
        render.print_data({"asked": [asdict(row) for row in rows], "waits_s": waits}, form.value)
        return
    for row in rows:
        more = [
            f"{name} {value:g}"
            for name, value in (("weight", row.weight), ("tier", row.tier))
            if value is not None
        ]
        render.print_text(
            ": ".join(filter(None, (f"{row.id} {row.state} {' '.join(more)}".strip(), row.reason)))
        )
    for task, seconds in sorted(waits.items()):
        render.print_text(f"{task} has waited {seconds:.0f} s")


def _change(
    task: str,
    what: str,
    run: Path,
    state: str | None,
    reason: str,
    weight: float | None = None,
    tier: int | None = None,
) -> None:
    from libra_plan.planner.controller.job_queue import change_task, require_known

    require_folder(run)
    with opened(run, state) as store:
        require_known(store, run, task)
        change_task(store, task, what, _now_s(), reason=reason, weight=weight, tier=tier)
    render.note(f"noted: {what} {task}; the next look acts on it")


def _now_s() -> float:
    from libra_plan.cli.replan_inputs import now

    return now().wall_s
