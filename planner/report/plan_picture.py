"""A picture of a plan as SVG: one lane a GPU, one bar a stage, over the longest step."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from libra_plan.models.topology import GpuId
    from libra_plan.planner.plan import Plan, Pool, RunningTask
    from libra_plan.planner.problem import Problem

__all__ = ["plan_svg"]

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
_LANE, _BAR, _LEFT, _WIDTH, _TOP = 26, 20, 96, 860, 34
_MOST_LANES = 64

Bar = tuple[float, float, str]
"""(start s, end s, label)."""


def plan_svg(problem: Problem, plan: Plan) -> str:
    """Draw the plan: steps repeat to the end of the longest one, so faster tasks show several."""
    horizon = max(running.configuration.step_time_s.value for running in plan.running)
    lanes = _lanes(problem, plan, horizon)
    names = [str(gpu) for gpu in problem.cluster.gpus][:_MOST_LANES]
    height = _TOP + _LANE * len(names) + 54
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{_LEFT}" y="20">one step of the slowest task, {horizon:,.0f} s; '
        f"{escape(plan.certificate.status.value)}, gap {plan.certificate.gap:.1e}</text>",
    ]
    for at, name in enumerate(names):
        y = _TOP + _LANE * at
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_BAR}" fill="#f2f2f2"/>')
        for task, (start, end, label) in lanes.get(name, ()):
            parts.append(_bar(task, start / horizon, end / horizon, label, y))
    parts.append(_legend(plan, _TOP + _LANE * len(names) + 20))
    more = len(problem.cluster.gpus) - len(names)
    if more:
        parts.append(f'<text x="{_LEFT}" y="{height - 6}">and {more} more GPUs</text>')
    return "\n".join([*parts, "</svg>\n"])


def _bar(task: int, start: float, end: float, label: str, y: int) -> str:
    x, width = _LEFT + start * _WIDTH, max(0.6, (end - start) * _WIDTH - 0.6)
    colour = _COLOURS[task % len(_COLOURS)]
    shown = label if width > 7.0 * len(label) else ""
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>'
        f'<text x="{x + 4:.1f}" y="{y + 14}" fill="white">{escape(shown)}</text>'
    )


def _legend(plan: Plan, y: int) -> str:
    words = []
    for at, running in enumerate(plan.running):
        x = _LEFT + at * 240
        words.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{_COLOURS[at % len(_COLOURS)]}"/>')
        words.append(
            f'<text x="{x + 18}" y="{y + 11}">{escape(running.task)}: step '
            f"{running.configuration.step_time_s.value:,.0f} s</text>"
        )
    return "\n".join(words)


def _lanes(problem: Problem, plan: Plan, horizon: float) -> dict[str, list[tuple[int, Bar]]]:
    """Give every GPU its bars, steps repeated to the horizon."""
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
    """Lay the stages of one step out in time: phases in turn, pools after each other when sync."""
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
    """Lay a step out that takes two pools in turn with another task's; nothing for other tasks."""
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
