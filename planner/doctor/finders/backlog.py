"""`backlog`: rewards or environments do not keep up with what waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from libra_plan.planner.doctor.evidence import TRAINING, Evidence
from libra_plan.planner.doctor.finders.starving import FEEDING, is_standing, mean_rate, queues
from libra_plan.planner.doctor.finders.wording import duration
from libra_plan.planner.doctor.finding import Finding, Gain, Level, Need, bound_of
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import QueueTrack
from libra_plan.planner.doctor.trends import Trend, growth, standing_share
from libra_plan.planner.doctor.work import kind_of

__all__ = ["Backlog"]


@dataclass(frozen=True)
class Backlog:
    """A queue beside the one of experience that grows, or never empties while training waits."""

    code: str = "backlog"
    needs: tuple[Need, ...] = (Need.QUEUES,)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each queue."""
        for task in evidence.tasks:
            waits = max(
                (
                    role.waited_share or 0.0
                    for role in evidence.of_kind(task, *TRAINING)
                    if role.covered_s.sum() >= limits.seen_s
                ),
                default=0.0,
            )
            for _, queue in queues(evidence, task):
                if queue.name == "experience":  # `training-slow`
                    continue
                trend = growth(queue.start_s, queue.last, limits, limits.queue_growth, "low")
                grows = trend if trend is not None and trend.last >= 2 * trend.first else None
                stands = (
                    queue.name not in FEEDING and is_standing(queue, limits) and waits >= limits.wait_share
                )
                if grows is not None or stands:
                    yield self._finding(evidence, (task, queue), grows, waits, limits)

    def _finding(
        self,
        evidence: Evidence,
        whose: tuple[str, QueueTrack],
        grows: Trend | None,
        waits: float,
        limits: Thresholds,
    ) -> Finding:
        task, queue = whose
        figures = {"last": float(queue.last[-1]), "longest": float(queue.longest.max())}
        figures |= {"standing_share": standing_share(queue.last), "training_waiting_share": waits}
        said = f"not empty in {figures['standing_share']:.0%} of the looks, {figures['longest']:.0f} at most"
        if grows is not None:
            figures["growth_per_s"] = grows.per_s
            said += f", grown from {grows.first:.0f} to {grows.last:.0f} in {duration(grows.seconds)}"
        if waits >= limits.wait_share:
            said += f"; training waited {waits:.0%} of the time"
        cause, advice = _why(queue.name)
        return Finding(
            self.code,
            Level.WARNING,
            f"{task + ': ' if task else ''}the {queue.name} queue does not empty",
            float(queue.start_s[0]),
            float(queue.start_s[-1]) + limits.stretch_s,
            said,
            cause,
            advice,
            _gain(evidence, task, queue.name, grows, waits, limits),
            figures,
            task=task,
            role=queue.name,
        )


def _gain(
    evidence: Evidence, task: str, name: str, grows: Trend | None, waits: float, limits: Thresholds
) -> Gain:
    if waits >= limits.wait_share:
        return bound_of(waits, "training's waiting")
    served = sum(mean_rate(role) or 0.0 for role in evidence.of_kind(task, kind_of(name)))
    if grows is None or served <= 0:
        return Gain("unknown", None, "not known: nobody counts what is served from the queue")
    factor = 1 + grows.per_s / served
    return Gain("bound", factor, f"at most × {factor:.2f}, if all that comes were served (a bound)")


def _why(name: str) -> tuple[str, str]:
    kind = kind_of(name)
    if kind == "reward":
        return (
            "the reward model or verifier scores slower than trajectories come in",
            "give the reward role more GPUs or workers, or score while the rollout goes on: solve again with "
            "its profile corrected",
        )
    if kind == "env":
        return (
            "tool environments answer slower than the rollout asks",
            "raise the environments' `cpu_workers` (see host-cpu for whether cores are left), and limit the "
            "slowest tools by a time-out",
        )
    if kind == "rollout":
        return (
            "more requests are sent than the engines can take at once",
            "more engines or more key-value cache for the rollout: `libra-plan batch` bounds the concurrency",
        )
    return (
        f"whoever serves the {name} queue is slower than what fills it",
        f"give the server of {name} more room",
    )
