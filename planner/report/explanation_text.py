"""An explanation as text: what limits each task, what would improve the plan, which tasks cannot run."""

from __future__ import annotations

from collections.abc import Iterator

from libra_plan.planner.explain import Explanation, OneMoreGpu, TaskExplanation
from libra_plan.planner.report.plan_text import seconds_text
from libra_plan.profiles.counting import counted

__all__ = ["explanation_text"]


def explanation_text(explanation: Explanation) -> str:
    """Return all that `explain` prints."""
    lines = [line for task in explanation.tasks for line in _task_lines(task)]
    for more in explanation.one_more_gpu:
        goes = ", ".join(more.goes_to) or "no task"
        lines.append(f"one more {more.gpu_class}: objective {more.gain:+.4f}, goes to {goes}{_prices(more)}")
    lines += _limit_lines(explanation)
    lines += [stuck.text for stuck in explanation.cannot_run]
    lines += [f"waits [{queued.code}] {queued.reason}" for queued in explanation.queued]
    return "\n".join(lines)


def _task_lines(task: TaskExplanation) -> Iterator[str]:
    yield f"{task.task}: {task.bottleneck} takes {task.share:.0%} of the step"
    yield f"  binds: {task.binding}"
    if task.one_more_gpu_gain is not None and task.gpus_needed is not None:
        yield f"  {counted(task.gpus_needed, 'more GPU')}: {task.one_more_gpu_gain:+.1%} throughput"
    for line in task.notes:
        yield f"  {line}"
    for other in task.alternatives:
        step = seconds_text(other.step_time_s)
        yield f"  {other.arrangement}: step {step} s on {counted(other.gpus, 'GPU')}"


def _prices(more: OneMoreGpu) -> str:
    if more.price is None or more.price_in_node is None:
        return ""
    return f" (LP price {more.price:.4f}, in a full node {more.price_in_node:.4f} per GPU)"


def _limit_lines(explanation: Explanation) -> Iterator[str]:
    """Yield which limit to raise first, and what the next-best plan would cost."""
    for number, each in enumerate(explanation.limits):
        word = "first" if number == 0 else "then"
        most = "" if each.at_most is None else f", at most {each.at_most:+.4f}"
        yield f"{word} {each.limit.text}: objective {each.gain:+.4f}{most}"
    if not explanation.limits:
        yield "no single limit, raised by a step, gains anything"
    other = explanation.next_best
    if other is None:
        yield "there is no other plan"
    else:
        differs = "; ".join(other.differs)
        yield f"next-best plan: objective {other.objective:.4f} ({-other.loss:+.4f}): {differs}"
