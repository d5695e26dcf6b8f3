"""`rollout-slow`: the rollout makes less than training would consume."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from libra_plan.planner.doctor.evidence import Evidence
from libra_plan.planner.doctor.finders.long_tail import LongTail
from libra_plan.planner.doctor.finders.starving import (
    FEEDING,
    Pair,
    capacity,
    is_standing,
    mean_rate,
    pairs,
    queues,
    when_waiting,
)
from libra_plan.planner.doctor.finders.wording import duration, whose
from libra_plan.planner.doctor.finding import Finding, Level, Need, bound_of
from libra_plan.planner.doctor.settings import Thresholds

__all__ = ["RolloutSlow"]


@dataclass(frozen=True)
class RolloutSlow:
    """Training waits, and the rollout does so less; no full buffer, no backlog of others explains it."""

    code: str = "rollout-slow"
    needs: tuple[Need, ...] = (Need.TRAINING, Need.WAITING)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each task whose training starves."""
        for pair in pairs(evidence, limits):
            waits = pair.training_waits
            if waits is None or waits < limits.wait_share:
                continue
            if pair.rollout_waits is not None and waits - pair.rollout_waits < limits.wait_lead:
                continue
            standing = [
                queue.name for _, queue in queues(evidence, pair.training.task) if is_standing(queue, limits)
            ]
            # a buffer that is never empty feeds training; another queue that stands holds the rollout back
            if "experience" in standing or any(name not in FEEDING for name in standing):
                continue
            yield self._finding(evidence, limits, pair, waits)

    def _finding(self, evidence: Evidence, limits: Thresholds, pair: Pair, waits: float) -> Finding:
        training, rollout = pair.training, pair.rollout
        when = when_waiting(training, limits)
        figures = {"training_waiting_share": waits, "covered_s": float(training.covered_s.sum())}
        if pair.rollout_waits is not None:
            figures["rollout_waiting_share"] = pair.rollout_waits
        takes, makes = capacity(training), mean_rate(rollout)
        said = (
            f"{whose(training.task, training.role)} waited {waits:.0%} of {duration(figures['covered_s'])}, "
            + (
                f"{rollout.role} does not tell its waits"
                if pair.rollout_waits is None
                else f"{rollout.role} {pair.rollout_waits:.0%}"
            )
        )
        if takes is not None and makes is not None:
            figures |= {"training_takes_samples_per_s": takes, "rollout_makes_samples_per_s": makes}
            said += f"; training could take {takes:.3g} samples/s, the rollout makes {makes:.3g}"
        return Finding(
            self.code,
            Level.WARNING,
            f"{training.task or 'training'}: rollout is slower than training consumes",
            when.began_s,
            when.ended_s,
            said,
            "rollout has too few GPUs, a layout that is too slow, or a long tail; training stands still "
            "meanwhile",
            self._advice(evidence, limits, pair),
            bound_of(waits, f"{training.role}'s waiting"),
            figures,
            task=training.task,
            role=rollout.role,
        )

    def _advice(self, evidence: Evidence, limits: Thresholds, pair: Pair) -> str:
        task, role = pair.rollout.task, pair.rollout.role
        if any(
            found.task == task and role in (found.role or "").split("+") for found in _tails(evidence, limits)
        ):
            return (
                "do not add GPUs yet: most of the rollout's own rest while a few finish (long-tail); even "
                "them out with `mixed_layouts`, partial rollouts or a shorter longest response"
            )
        coupling = None if evidence.placement is None else evidence.placement.couplings.get(task)
        first = (
            "let training go on meanwhile (coupling `async`, staleness_steps ≥ 1), or "
            if coupling == "sync"
            else ""
        )
        return (
            f"{first}move GPUs to the rollout: correct its profile by what was seen (`libra-plan profile "
            "drift`) and solve again (`libra-plan solve … --out run/`)"
        )


def _tails(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    return LongTail().look(evidence, limits)
