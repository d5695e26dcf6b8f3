"""A picture of a plan as SVG: one lane for each GPU, one bar for each stage, over the longest step."""

from __future__ import annotations

from pathlib import Path

from libra_plan.errors import writing
from libra_plan.models.topology import GpuId
from libra_plan.planner.plan import Plan, Pool, RunningTask
from libra_plan.planner.problem import Problem
from libra_plan.planner.report.svg import COLOURS, Svg, check_svg_name
from libra_plan.profiles.durable import write_atomically

__all__ = ["plan_svg", "write_plan_svg"]

_LANE, _BAR, _LEFT, _WIDTH, _TOP = 26, 20, 96, 860, 34
_LETTER = 7.0  # pixels that a letter takes
_MOST_LANES = 64

Bar = tuple[float, float, str]
"""Start and end, seconds, and the label."""


def write_plan_svg(problem: Problem, plan: Plan, path: Path) -> None:
    """Write the picture of the plan to a file."""
    check_svg_name(path)
    with writing(path):
        write_atomically(path, plan_svg(problem, plan).encode())


def plan_svg(problem: Problem, plan: Plan) -> str:
    """Return the picture of a plan. Steps repeat until the longest one ends, so faster tasks show several."""
    horizon = max(running.configuration.step_time_s.value for running in plan.running)
    lanes = _lanes(problem, plan, horizon)
    names = [str(gpu) for gpu in problem.cluster.gpus][:_MOST_LANES]
    height = _TOP + _LANE * len(names) + 54
    svg = Svg(_LEFT + _WIDTH + 20, height)
    proof = plan.certificate
    svg.words(
        _LEFT,
        20,
        f"one step of the slowest task, {horizon:,.0f} s; {proof.status.value}, gap {proof.gap:.1e}",
    )
    for at, name in enumerate(names):
        y = _TOP + _LANE * at
        svg.words(_LEFT - 8, y + 15, name, text_anchor="end")
        svg.rect(_LEFT, y, _WIDTH, _BAR, fill="#f2f2f2")
        for task, (start, end, label) in lanes.get(name, ()):
            x, width = _LEFT + start / horizon * _WIDTH, max(0.6, (end - start) / horizon * _WIDTH - 0.6)
            svg.rect(x, y, width, _BAR, fill=COLOURS[task % len(COLOURS)])
            if width > _LETTER * len(label):
                svg.words(x + 4, y + 14, label, fill="white")
    y = _TOP + _LANE * len(names) + 20
    for at, running in enumerate(plan.running):
        x = _LEFT + at * 240
        svg.rect(x, y, 12, 12, fill=COLOURS[at % len(COLOURS)])
        step = f"{running.configuration.step_time_s.value:,.0f} s"
        svg.words(x + 18, y + 11, f"{running.task}: step {step}")
    more = len(problem.cluster.gpus) - len(names)
    if more:
        svg.words(_LEFT, height - 6, f"and {more} more GPUs")
    return svg.text


def _lanes(problem: Problem, plan: Plan, horizon: float) -> dict[str, list[tuple[int, Bar]]]:
    """Map each GPU to its bars, with steps repeated to the horizon."""
    lanes: dict[str, list[tuple[int, Bar]]] = {}
    for number, running in enumerate(plan.running):
        step = running.configuration.step_time_s.value
        once = _in_turn(plan, running) or _one_step(problem, running)
        for repeat in range(max(1, int(horizon / step + 1e-6))):
            for gpu, (start, end, label) in once:
                shifted = (start + repeat * step, end + repeat * step, label)
                lanes.setdefault(str(gpu), []).append((number, shifted))
    return lanes


def _one_step(problem: Problem, running: RunningTask) -> list[tuple[GpuId, Bar]]:
    """Return the bars of one step: phases follow each other, and so do the pools of a `sync` task."""
    gpus = {role.role: role.gpus for role in running.roles}
    together = problem.task_of[running.task].coupling.kind.value != "sync"
    bars: list[tuple[GpuId, Bar]] = []
    now = 0.0
    for phase in running.configuration.phases:
        start = now
        for pool in phase.pools:
            at = start if together else now
            for choice in pool.choices:
                end = at + choice.option.time_s.value
                bars += [(gpu, (at, end, choice.role)) for gpu in gpus[choice.role]]
                at = end
            now = max(now, at)
    return bars


def _in_turn(plan: Plan, running: RunningTask) -> list[tuple[GpuId, Bar]]:
    """Return the bars of a task that takes two pools in turn with another task; nothing for other tasks."""
    run = next((run for run in plan.joint if run.kind.value == "turns" and running.task in run.tasks), None)
    if run is None:
        return []
    pools_of = {each.task: each.configuration.phases[0].pools for each in plan.running}
    first, second = (pools_of[task] for task in run.tasks)
    now = {0: 0.0, 1: max(_work_s(first[0]), _work_s(second[1]))}
    member = run.tasks.index(running.task)
    gpus = {role.role: role.gpus for role in running.roles}
    bars: list[tuple[GpuId, Bar]] = []
    for number, pool in enumerate(pools_of[running.task]):
        at = now[(number + member) % 2]
        for choice in pool.choices:
            end = at + choice.option.time_s.value
            bars += [(gpu, (at, end, choice.role)) for gpu in gpus[choice.role]]
            at = end
    return bars


def _work_s(pool: Pool) -> float:
    return sum(choice.option.time_s.value for choice in pool.choices)
