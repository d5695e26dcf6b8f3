"""What people see: tables and GPU maps. The only module that prints; results go to stdout."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

from libra_plan.errors import InputError
from libra_plan.planner.report.node_ranges import node_ranges, node_spans
from libra_plan.planner.report.text_table import Page, table_text
from libra_plan.profiles.counting import counted
from libra_plan.profiles.units import MIB_PER_GIB

if TYPE_CHECKING:
    from libra_plan.models.topology import Cluster, GpuId
    from libra_plan.planner.explain import Explanation, OneMoreGpu
    from libra_plan.planner.plan import Plan, Pool, RunningTask
    from libra_plan.planner.problem import Problem

__all__ = ["note", "print_data", "print_explanation", "print_line", "print_plan", "print_table", "print_text"]


def print_text(text: str) -> None:
    """Write a result."""
    _say(text)


def print_line(text: str) -> None:
    """Write a line of a result that goes on, at once even where stdout is a pipe."""
    _say(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """Write what is no result: progress, warnings, what was written where."""
    with suppress(OSError):  # nobody can be told that nobody can be told
        typer.echo(text, err=True)


def _say(text: str = "") -> None:
    try:
        typer.echo(text)
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise InputError(
            "the result cannot be written",
            got=problem.strerror,
            way_out="free some space, or write elsewhere",
        ) from None


def print_data(data: object, form: str) -> None:
    """Write a result as JSON or YAML."""
    if form == "yaml":
        import yaml  # only for this form

        _say(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110).rstrip("\n"))
    else:
        _say(json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """Write a table; `right` numbers the columns that are aligned to the right."""
    _say(table_text(columns, rows, right, page()))


def page() -> Page:
    """Return the page that stdout is: the terminal's width, or no limit where stdout is piped."""
    if not sys.stdout.isatty():
        return Page()
    bold = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Page(shutil.get_terminal_size().columns, bold)


def print_plan(problem: Problem, plan: Plan) -> None:
    """Write the plan: roles, tasks, the GPU map, what waits, and the proof."""
    _print_roles(problem, plan)
    _say()
    _print_tasks(problem, plan)
    _print_joint(plan)
    _say()
    _print_map(problem.cluster, plan)
    for queued in plan.queued:
        _say(f"\nwaits [{queued.code}] {queued.reason}")
    _say()
    _print_proof(plan)
    _print_promises(plan)


def _print_roles(problem: Problem, plan: Plan) -> None:
    rows = []
    for running in plan.running:
        for number, role in enumerate(running.roles):
            pool = _pool_of(running, role.role)
            memory = problem.cluster.memory_mib(pool.gpu_class)
            rows.append(
                [
                    running.task if number == 0 else "",
                    role.role,
                    role.choice.option.form,
                    _by_node([str(gpu) for gpu in sorted(set(role.gpus))]),
                    _seconds(role.choice.option.time_s.value),
                    role.choice.option.time_s.origin.value,
                    f"{role.choice.option.peak_mib / MIB_PER_GIB:.1f}",
                    f"{pool.peak_mib / MIB_PER_GIB:.1f}/{memory / MIB_PER_GIB:.1f}",
                ]
            )
        rows += _cpu_rows(running)
    print_table(
        ["task", "role", "layout", "GPUs", "stage s", "origin", "role GiB", "GPU GiB (upper bound)"],
        rows,
        right=(4, 6, 7),
    )


def _cpu_rows(running: RunningTask) -> list[list[str]]:
    """Give a row for each CPU role and number of workers a node, its nodes as ranges."""
    nodes: dict[tuple[str, int], list[str]] = {}
    for share in running.cpu:
        nodes.setdefault((share.role, share.workers), []).append(share.node)
    rows = []
    for (role, workers), names in nodes.items():
        each = " a node" if len(names) > 1 else ""
        rows.append(["", role, f"{workers} workers{each}", f"{node_ranges(names)} (CPU)", "", "", "", ""])
    return rows


def _print_tasks(problem: Problem, plan: Plan) -> None:
    rows = []
    for running in plan.running:
        task = problem.task_of[running.task]
        step = running.configuration.step_time_s
        slowest, share = running.configuration.bottleneck
        rows.append(
            [
                running.task + (" (moved)" if running.moved else ""),
                f"{task.weight:g}",
                str(running.configuration.gpus),
                _shape(running),
                f"{_seconds(step.value)} ({_seconds(step.low)} – {_seconds(step.high)})",
                f"{slowest} {share:.0%}",
                "?" if task.samples_per_step is None else f"{task.samples_per_step / step.value:.3g}",
                "?" if task.tokens_per_step is None else f"{task.tokens_per_step / step.value:,.0f}",
                f"{running.normalised:.3f}",
            ]
        )
    print_table(
        [
            "task",
            "weight",
            "GPUs",
            "pools",
            "step s",
            "bottleneck",
            "samples /s",
            "tokens /s",
            "× fair share",
        ],
        rows,
        right=(1, 2, 4, 6, 7, 8),
    )


def _print_joint(plan: Plan) -> None:
    """Say which tasks run jointly, and who works beside whom."""
    from libra_plan.planner.launchers.joint import joint_entries

    for entry in joint_entries(plan):
        beside = [", ".join(turn) for turn in entry.turns]
        if entry.kind == "turns":
            said = f"take their pools in turn: {'; then '.join(beside)}"
        else:
            said = f"leave their rollouts to one engine: {beside[0]}"
        _say(f"\njointly, {' and '.join(entry.tasks)} {said}")


def _shape(running: RunningTask) -> str:
    """Write phases and pools as in `rollout | reference + actor`; `sleep` marks pools that sleep."""
    phases = []
    for phase in running.configuration.phases:
        pools = [
            " + ".join(choice.role for choice in pool.choices)
            + (" sleep" if pool.memory_mode.value == "sleep" else "")
            for pool in phase.pools
        ]
        phases.append(" | ".join(pools))
    return " ; ".join(phases)


def _print_map(cluster: Cluster, plan: Plan) -> None:
    """Draw one line a node, one letter a GPU; nodes that look alike are drawn once."""
    letters = {running.task: chr(ord("A") + at % 26) for at, running in enumerate(plan.running)}
    owner: dict[GpuId, str] = {}
    for running in plan.running:
        for gpu in running.gpus:
            owner[gpu] = owner.get(gpu, "") + letters[running.task]
    cell = max(map(len, owner.values()), default=1)
    lines: dict[str, list[str]] = {}
    for node in cluster:
        drawn = " ".join(owner.get(gpu.id, "·").ljust(cell) for gpu in node.gpus).rstrip()
        lines.setdefault(drawn, []).append(node.id)
    spans = {drawn: _span(names) for drawn, names in lines.items()}
    width = max(map(len, spans.values()))
    for drawn, span in spans.items():
        _say(f"{span.ljust(width)}  {drawn}")
    _say("  ".join([*(f"{letter} = {task}" for task, letter in letters.items()), "· = free"]))


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{node_ranges(names)} ({counted(len(names), 'node')})"


def _print_proof(plan: Plan) -> None:
    proof = plan.certificate
    objective = _OBJECTIVES.get(proof.policy, "Σ weight × fair share")
    _say(
        f"{proof.status.value}: {objective} = {proof.objective:.6f}, no plan exceeds {proof.bound:.6f} "
        f"(gap {proof.gap:.2e}; bounds: {_named(proof.bounds)}; {counted(proof.configurations, 'configuration')})"
    )
    if proof.baselines:
        _say(f"for comparison: {_named(proof.baselines)}")


_OBJECTIVES = {
    "max-min": "worst task's × fair share",
    "priority": "Σ weight × fair share of the first tier",
}


def _print_promises(plan: Plan) -> None:
    """Write what policies and tasks asked beside the objective: costs, tiers, teams, missed deadlines."""
    proof = plan.certificate
    if proof.cost_per_hour is not None:
        budget = "" if proof.budget_per_hour is None else f", of a budget of {proof.budget_per_hour:,.2f}"
        _say(f"cost: {proof.cost_per_hour:,.2f} an hour{budget}")
    for each in proof.passes:
        _say(f"{each.name}: {each.objective:.6f}, no plan betters {each.bound:.6f}")
    for team in proof.teams:
        borrowed = f", {team.borrowed_gpus} of them borrowed" if team.borrowed_gpus else ""
        _say(
            f"team {team.team}: {counted(team.gpus, 'GPU')}{borrowed} (quota {team.quota_gpus}); "
            f"worth {team.worth:.4f}, within its quota {team.worth_at_quota:.4f}"
        )
    for slack in proof.deadlines:
        wanted = (
            "more than it can have" if slack.wanted_steps_per_s is None else _hourly(slack.wanted_steps_per_s)
        )
        _say(
            f"missed [{slack.code}] {slack.task}: asks {wanted}, has {_hourly(slack.steps_per_s)}; at best "
            f"{_hourly(slack.best_alone_steps_per_s)} alone on the cluster, "
            f"{_hourly(slack.best_beside_steps_per_s)} with the other deadlines kept"
        )


def _hourly(steps_per_s: float | None) -> str:
    return "?" if steps_per_s is None else f"{3600 * steps_per_s:.4g} steps/h"


def _named(values: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {value:.6f}" for name, value in values)


def print_explanation(explanation: Explanation) -> None:
    """Write what binds every task, what would better the plan, and what must give way where none is."""
    for task in explanation.tasks:
        _say(f"{task.task}: {task.bottleneck} takes {task.share:.0%} of the step")
        _say(f"  binds: {task.binding}")
        if task.one_more_gpu_gain is not None and task.gpus_needed is not None:
            _say(f"  {counted(task.gpus_needed, 'more GPU')}: {task.one_more_gpu_gain:+.1%} throughput")
        for line in task.notes:
            _say(f"  {line}")
        for other in task.alternatives:
            _say(
                f"  {other.arrangement}: step {_seconds(other.step_time_s)} s on {counted(other.gpus, 'GPU')}"
            )
    for more in explanation.one_more_gpu:
        goes = ", ".join(more.goes_to) or "no task"
        _say(f"one more {more.gpu_class}: objective {more.gain:+.4f}, goes to {goes}{_prices(more)}")
    _print_limits(explanation)
    for stuck in explanation.cannot_run:
        _say(stuck.text)


def _prices(more: OneMoreGpu) -> str:
    if more.price is None or more.price_in_node is None:
        return ""
    return f" (LP price {more.price:.4f}, in a full node {more.price_in_node:.4f} per GPU)"


def _print_limits(explanation: Explanation) -> None:
    """Write which limit to raise first, and what the next-best plan would cost."""
    for number, each in enumerate(explanation.limits):
        word = "first" if number == 0 else "then"
        most = "" if each.at_most is None else f", at most {each.at_most:+.4f}"
        _say(f"{word} {each.limit.text}: objective {each.gain:+.4f}{most}")
    if not explanation.limits:
        _say("no single limit, raised by a step, gains anything")
    other = explanation.next_best
    if other is None:
        _say("there is no other plan")
    else:
        differs = "; ".join(other.differs)
        _say(f"next-best plan: objective {other.objective:.4f} ({-other.loss:+.4f}): {differs}")


def _pool_of(running: RunningTask, role: str) -> Pool:
    return next(
        pool
        for phase in running.configuration.phases
        for pool in phase.pools
        if any(choice.role == role for choice in pool.choices)
    )


def _by_node(gpus: Sequence[str]) -> str:
    """Write `node0:0-3,6` for GPUs by node, `node0…node9:0-7` for nodes with the same ones."""
    nodes: dict[str, list[int]] = {}
    for gpu in gpus:
        node, _, index = gpu.rpartition(":")
        nodes.setdefault(node, []).append(int(index))
    alike: dict[str, list[str]] = {}
    for node, indices in nodes.items():
        alike.setdefault(_ranges(sorted(indices)), []).append(node)
    return " ".join(f"{span}:{indices}" for indices, names in alike.items() for span in node_spans(names))


def _ranges(indices: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def as_data(value: Any) -> Any:
    """Turn frozen results into plain data for JSON and YAML."""
    import msgspec  # with the verbs that need it

    return msgspec.to_builtins(value, str_keys=True)
