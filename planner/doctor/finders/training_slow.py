"""`training-slow`: training consumes less than the rollout makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finders.starving import Pair, pairs, queues, when_waiting
from libra_plan.planner.doctor.finders.wording import duration, whose
from libra_plan.planner.doctor.finding import Finding, Level, Need, bound_of
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.trends import Trend, growth

__all__ = ["TrainingSlow"]


@dataclass(frozen=True)
class TrainingSlow:
    """The rollout waits and training does so less, or the buffer between them grows."""

    code: str = "training-slow"
    needs: tuple[Need, ...] = (Need.TRAINING,)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each task whose rollout is held up by training."""
        for pair in pairs(evidence, limits):
            waits, leads = pair.rollout_waits, True
            if waits is not None and pair.training_waits is not None:
                leads = waits - pair.training_waits >= limits.wait_lead
            grows = _growth(evidence, pair, limits)
            if (waits is not None and waits >= limits.wait_share and leads) or grows is not None:
                yield self._finding(pair, waits, grows, limits)

    def _finding(self, pair: Pair, waits: float | None, grows: Trend | None, limits: Thresholds) -> Finding:
        training, rollout = pair.training, pair.rollout
        figures = {"covered_s": float(rollout.covered_s.sum())}
        said = []
        if waits is not None:
            figures["rollout_waiting_share"] = waits
            said.append(
                f"{whose(rollout.task, rollout.role)} waited {waits:.0%} of {duration(figures['covered_s'])}"
            )
        if pair.training_waits is not None:
            figures["training_waiting_share"] = pair.training_waits
            said.append(f"{training.role} {pair.training_waits:.0%}")
        if grows is not None:
            figures |= {"experience_first": grows.first, "experience_last": grows.last}
            said.append(f"the experience buffer grew from {grows.first:.0f} to {grows.last:.0f}")
        when = when_waiting(rollout, limits)
        return Finding(
            self.code,
            Level.WARNING,
            f"{rollout.task or 'training'}: training is slower than the rollout makes",
            when.began_s,
            when.ended_s,
            ", ".join(said),
            "training has too few GPUs or too small micro-batches; samples grow stale in the buffer "
            "meanwhile",
            "raise the micro-batch as far as memory allows (`libra-plan batch`), then move GPUs to training "
            "(`libra-plan profile drift`, `libra-plan solve … --out run/`)",
            bound_of(waits or 0.0, f"{rollout.role}'s waiting"),
            figures,
            task=training.task,
            role=training.role,
        )


def _growth(evidence: Evidence, pair: Pair, limits: Thresholds) -> Trend | None:
    found = (
        growth(queue.start_s, queue.last, limits, limits.queue_growth, "low")
        for _, queue in queues(evidence, pair.training.task)
        if queue.name == "experience"
    )
    return next((trend for trend in found if trend is not None and trend.last >= 2 * trend.first), None)
