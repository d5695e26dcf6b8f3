"""`gpus-idle`: GPUs rest in windows that are long enough to use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from libra_plan.planner.doctor.evidence import Evidence, Group
from libra_plan.planner.doctor.finders.wording import duration, named
from libra_plan.planner.doctor.finding import Finding, Level, Need, bound_of
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import GpuTrack, Spell, spells

__all__ = ["GpusIdle"]

_HELD_SHARE = 0.05  # of a GPU's memory: more is held by somebody


@dataclass(frozen=True)
class GpusIdle:
    """Adds up the time in which GPUs are known to be idle; unknown time counts as neither."""

    code: str = "gpus-idle"
    needs: tuple[Need, ...] = (Need.GPUS,)

    def look(self, evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
        """Give a finding for each group of GPUs that rests."""
        for group in evidence.groups:
            known_s = sum(float(gpu.known_s.sum()) for gpu in group.gpus)
            idle_s = sum(float(gpu.idle_s.sum()) for gpu in group.gpus)
            if known_s < limits.seen_s or idle_s < limits.idle_share * known_s:
                continue
            longest = max(
                ((spell, gpu) for gpu in group.gpus for spell in _pauses(gpu, limits)),
                key=lambda found: found[0].length_s,
                default=None,
            )
            if longest is not None and longest[0].length_s >= limits.idle_s:
                yield self._finding(group, idle_s, known_s, *longest)

    def _finding(self, group: Group, idle_s: float, known_s: float, pause: Spell, whose: GpuTrack) -> Finding:
        share, held = idle_s / known_s, _held_share(group.gpus)
        resting = [gpu.name for gpu in group.gpus if gpu.idle_s.sum() > 0]
        figures = {"idle_share": share, "idle_gpu_hours": idle_s / 3600, "longest_pause_s": pause.length_s}
        said = (
            f"idle {share:.0%} of {known_s / 3600:.3g} GPU-hours ({named(resting)}), "
            f"{duration(pause.length_s)} on end on {whose.name}"
        )
        if held is not None:
            figures["memory_held_share"] = held
            said += f"; memory was held in {held:.0%} of that"
        cause, advice = _why(group, held)
        return Finding(
            self.code,
            Level.WARNING,
            f"{group.name}: GPUs are idle",
            pause.began_s,
            pause.ended_s,
            said,
            cause,
            advice,
            bound_of(share, "the idle time of these GPUs"),
            figures,
            task=group.task,
            role="+".join(group.roles) or None,
            gpus=tuple(resting),
        )


def _pauses(gpu: GpuTrack, limits: Thresholds) -> Iterator[Spell]:
    # nearly all of a window: the sample in which work ends is half of each
    idle = (gpu.known_s > 0) & (gpu.idle_s >= 0.9 * gpu.seconds)
    return spells(gpu.start_s, idle, limits.window_s, limits.gap_s)


def _held_share(gpus: tuple[GpuTrack, ...]) -> float | None:
    """Give the share of idle time in which somebody held memory; None where memory is not known."""
    held_s = known_s = 0.0
    for gpu in gpus:
        share = gpu.used_low_mib / gpu.limit_mib
        held_s += float(gpu.idle_s[share > _HELD_SHARE].sum())
        known_s += float(gpu.idle_s[share >= 0].sum())
    return held_s / known_s if known_s else None


def _why(group: Group, held: float | None) -> tuple[str, str]:
    if held is not None and held < 0.5:
        return (
            "nobody holds them: no task was placed there, or it has ended",
            "give them to a task that waits: `libra-plan solve … --out run/` says to whom and what it brings",
        )
    if len(group.roles) > 1:
        return (
            "the roles that take them in turn all wait for something else at once",
            "look for whom they wait for: the findings on rollout, backlog and network; then solve again",
        )
    return (
        "whoever holds their memory waits for another role",
        "let roles that work at different times take the same GPUs in turn (`can_sleep`, one pool), or let "
        "them overlap (coupling `async`); `libra-plan solve … --out run/` compares both",
    )
