"""What policies know of lengths: those of the start, those seen, those to come."""

from __future__ import annotations

from collections.abc import Mapping

from libra_plan.models.length_forecast import LEAST_HISTORY, forecast_lengths
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.planner.simulate.policy import TaskView, View

__all__ = ["at_first", "by_forecast", "exact", "names", "recent", "same_tasks"]

_MOST_HISTORY = 40
_RECENT = 5


def exact(tokens: float) -> Estimate:
    """Give a length as it is."""
    return Estimate(tokens, tokens, tokens, "tokens", Origin.MEASURED)


def names(view: View) -> tuple[str, ...]:
    """Name the tasks that are here."""
    return tuple(task.id for task in view.tasks)


def at_first(view: View) -> dict[str, Estimate]:
    """Give the mean lengths that tasks begin with."""
    return {task.id: exact(view.world.task_of[task.id].responses.first_mean_tokens) for task in view.tasks}


def recent(view: View) -> dict[str, Estimate]:
    """Give the mean length over the last steps seen, else that of the start."""
    found = at_first(view)
    for task in view.tasks:
        if task.means:
            last = task.means[-_RECENT:]
            found[task.id] = exact(_possible(view, task.id, sum(last) / len(last)))
    return found


def by_forecast(view: View, ahead_s: float) -> dict[str, Estimate]:
    """Give the mean length so many seconds ahead, by the forecast of `models/length_forecast.py`."""
    found = recent(view)
    for task in view.tasks:
        if len(task.means) < LEAST_HISTORY:
            continue
        known = task.means[-_MOST_HISTORY:]
        mean = forecast_lengths(known).at(max(0, min(len(known), round(ahead_s / _step_s(view, task)))))
        value = _possible(view, task.id, mean.value)
        found[task.id] = Estimate(
            value, min(value, mean.low), max(value, mean.high), "tokens", Origin.EXTRAPOLATED
        )
    return found


def _step_s(view: View, task: TaskView) -> float:
    """Estimate the seconds of a step from those done so far."""
    here = view.now_s - view.world.task_of[task.id].arrives_s
    return max(1.0, here / max(1, task.steps_done))


def _possible(view: View, task: str, mean: float) -> float:
    """Keep a mean clearly below the cut: longer there is none."""
    return min(mean, 0.48 * view.world.task_of[task].responses.max_tokens)


def same_tasks(before: Mapping[str, object], view: View) -> bool:
    """Tell whether the same tasks are here."""
    return set(before) == set(names(view))
