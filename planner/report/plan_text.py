"""A plan as text: roles, tasks, the map of GPUs, the tasks that wait, and the proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.plan import Certificate, Plan, Pool, RunningTask
from libra_plan.planner.problem import Problem
from libra_plan.planner.report.node_ranges import node_ranges, node_spans
from libra_plan.planner.report.text_table import PLAIN, Page, table_text
from libra_plan.profiles.counting import counted
from libra_plan.profiles.units import MIB_PER_GIB

__all__ = ["Table", "plan_text", "proof_lines", "role_table", "seconds_text", "task_table"]

Table = tuple[list[str], list[list[str]], tuple[int, ...]]
"""The names of columns, the rows, and the numbers of the columns aligned to the right."""

_OBJECTIVES = {
    "max-min": "worst task's × fair share",
    "priority": "Σ weight × fair share of the first tier",
}


def plan_text(problem: Problem, plan: Plan, page: Page = PLAIN) -> str:
    """Return all that `solve` prints of a plan."""
    parts = [
        table_text(*role_table(problem, plan), page),
        "\n\n".join([table_text(*task_table(problem, plan), page), *_joint_lines(plan)]),
        _gpu_map(problem.cluster, plan),
        *(f"waits [{queued.code}] {queued.reason}" for queued in plan.queued),
        "\n".join([*proof_lines(plan), *_promises(plan.certificate)]),
    ]
    return "\n\n".join(parts)


def role_table(problem: Problem, plan: Plan) -> Table:
    """Return one row for each role; a CPU role has one for each number of workers per node."""
    rows = []
    for running in plan.running:
        for number, role in enumerate(running.roles):
            pool = _pool_of(running, role.role)
            memory = problem.cluster.memory_mib(pool.gpu_class)
            option = role.choice.option
            rows.append(
                [
                    running.task if number == 0 else "",
                    role.role,
                    option.form,
                    gpus_by_node(sorted(set(role.gpus))),
                    seconds_text(option.time_s.value),
                    option.time_s.origin.value,
                    f"{option.peak_mib / MIB_PER_GIB:.1f}",
                    f"{pool.peak_mib / MIB_PER_GIB:.1f}/{memory / MIB_PER_GIB:.1f}",
                ]
            )
        rows += _cpu_rows(running)
    columns = ["task", "role", "layout", "GPUs", "stage s", "origin", "role GiB", "GPU GiB (upper bound)"]
    return columns, rows, (4, 6, 7)


def _cpu_rows(running: RunningTask) -> list[list[str]]:
    nodes: dict[tuple[str, int], list[str]] = {}
    for share in running.cpu:
        nodes.setdefault((share.role, share.workers), []).append(share.node)
    rows = []
    for (role, workers), names in nodes.items():
        each = " a node" if len(names) > 1 else ""
        rows.append(["", role, f"{workers} workers{each}", f"{node_ranges(names)} (CPU)", "", "", "", ""])
    return rows


def task_table(problem: Problem, plan: Plan) -> Table:
    """Return one row for each task: its pools, its step and its rates."""
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
                _pools(running),
                f"{seconds_text(step.value)} ({seconds_text(step.low)} – {seconds_text(step.high)})",
                f"{slowest} {share:.0%}",
                "?" if task.samples_per_step is None else f"{task.samples_per_step / step.value:.3g}",
                "?" if task.tokens_per_step is None else f"{task.tokens_per_step / step.value:,.0f}",
                f"{running.normalised:.3f}",
            ]
        )
    columns = ["task", "weight", "GPUs", "pools", "step s", "bottleneck", "samples /s", "tokens /s"]
    return [*columns, "× fair share"], rows, (1, 2, 4, 6, 7, 8)


def _pools(running: RunningTask) -> str:
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


def _joint_lines(plan: Plan) -> Iterator[str]:
    """Return which tasks run jointly, and which of their stages run at the same time."""
    if not plan.joint:
        return
    from libra_plan.planner.launchers.joint import joint_entries  # with joint tasks only

    for entry in joint_entries(plan):
        beside = [", ".join(turn) for turn in entry.turns]
        yield (f"jointly, {' and '.join(entry.tasks)} take their pools in turn: {'; then '.join(beside)}")


def _gpu_map(cluster: Cluster, plan: Plan) -> str:
    """Return one line for each node with one letter for each GPU; equal nodes share a line."""
    letters = {running.task: chr(ord("A") + at % 26) for at, running in enumerate(plan.running)}
    owner: dict[GpuId, str] = {}
    for running in plan.running:
        for gpu in running.gpus:
            owner[gpu] = owner.get(gpu, "") + letters[running.task]
    cell = max(map(len, owner.values()), default=1)
    alike: dict[str, list[str]] = {}
    for node in cluster:
        drawn = " ".join(owner.get(gpu.id, "·").ljust(cell) for gpu in node.gpus).rstrip()
        alike.setdefault(drawn, []).append(node.id)
    spans = {drawn: _span(names) for drawn, names in alike.items()}
    width = max(map(len, spans.values()))
    lines = [f"{span.ljust(width)}  {drawn}" for drawn, span in spans.items()]
    legend = "  ".join([*(f"{letter} = {task}" for task, letter in letters.items()), "· = free"])
    return "\n".join([*lines, legend])


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{node_ranges(names)} ({counted(len(names), 'node')})"


def proof_lines(plan: Plan) -> Iterator[str]:
    """Return the objective of the plan, and the bound on the objective of every plan.

    A bound is called proven when the verifier has recomputed it, and claimed when it could not.
    """
    proof = plan.certificate
    objective = _OBJECTIVES.get(proof.policy, "Σ weight × fair share")
    configurations = counted(proof.configurations, "configuration")
    how = "claimed" if plan.proven_by is None else f"proven by {plan.proven_by}"
    yield (
        f"{proof.status.value}: {objective} = {proof.objective:.6f}, no plan exceeds {proof.bound:.6f} "
        f"({how}; gap {proof.gap:.2e}; bounds: {_named(proof.bounds)}; {configurations})"
    )
    if proof.baselines:
        yield f"for comparison: {_named(proof.baselines)}"


def _named(values: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {value:.6f}" for name, value in values)


def _promises(proof: Certificate) -> Iterator[str]:
    """Yield what the policy adds to the objective: costs, tiers, teams and missed deadlines."""
    if proof.cost_per_hour is not None:
        budget = "" if proof.budget_per_hour is None else f", of a budget of {proof.budget_per_hour:,.2f}"
        yield f"cost: {proof.cost_per_hour:,.2f} an hour{budget}"
    for each in proof.passes:
        yield f"{each.name}: {each.objective:.6f}, no plan betters {each.bound:.6f}"
    for team in proof.teams:
        borrowed = f", {team.borrowed_gpus} of them borrowed" if team.borrowed_gpus else ""
        yield (
            f"team {team.team}: {counted(team.gpus, 'GPU')}{borrowed} (quota {team.quota_gpus}); "
            f"worth {team.worth:.4f}, within its quota {team.worth_at_quota:.4f}"
        )
    for slack in proof.deadlines:
        wanted = (
            "more than it can have" if slack.wanted_steps_per_s is None else _hourly(slack.wanted_steps_per_s)
        )
        yield (
            f"missed [{slack.code}] {slack.task}: asks {wanted}, has {_hourly(slack.steps_per_s)}; at best "
            f"{_hourly(slack.best_alone_steps_per_s)} alone on the cluster, "
            f"{_hourly(slack.best_beside_steps_per_s)} with the other deadlines kept"
        )


def _hourly(steps_per_s: float | None) -> str:
    return "?" if steps_per_s is None else f"{3600 * steps_per_s:.4g} steps/h"


def _pool_of(running: RunningTask, role: str) -> Pool:
    return next(
        pool
        for phase in running.configuration.phases
        for pool in phase.pools
        if any(choice.role == role for choice in pool.choices)
    )


def gpus_by_node(gpus: Sequence[GpuId]) -> str:
    """Write `node0:0-3,6` for GPUs by node, `node0…node9:0-7` for nodes with the same ones."""
    nodes: dict[str, list[int]] = {}
    for gpu in gpus:
        nodes.setdefault(gpu.node, []).append(gpu.index)
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


def seconds_text(value: float) -> str:
    """Write seconds with three digits, or whole ones from 100 on."""
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"
