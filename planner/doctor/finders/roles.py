"""Roles that wait for one another: training, rollout, ranks, and queues that do not empty."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from libra_plan.planner.doctor.evidence import TRAINING, Evidence
from libra_plan.planner.doctor.finders.gpus import long_tail
from libra_plan.planner.doctor.finding import (
    Finding,
    Gain,
    Level,
    Need,
    bound_of,
    duration,
    finder,
    finding,
    unknown,
)
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import QueueTrack, RoleTrack, Spell
from libra_plan.planner.doctor.trends import Trend, growth, standing_share
from libra_plan.planner.doctor.work import guess_kind

__all__ = ["backlog", "ranks_uneven", "rollout_slow", "training_slow"]

_EXPERIENCE = "experience"
_FEEDING = (_EXPERIENCE, "rollout")  # queues between rollout and training; every other is other work's
_LEAST_LOOKS = 10


def _pairs(evidence: Evidence, limits: Thresholds) -> Iterator[tuple[RoleTrack, RoleTrack]]:
    """Yield training role and rollout of every task that has both and was seen for long enough."""
    for task in evidence.tasks:
        training, rollout = evidence.of_kind(task, *TRAINING), evidence.of_kind(task, "rollout")
        if not training or not rollout:
            continue
        # the actor, where a critic trains beside it
        trains = min(training, key=lambda role: TRAINING.index(role.kind))
        rolls = max(rollout, key=lambda role: float(role.covered_s.sum()))
        if min(trains.covered_s.sum(), rolls.covered_s.sum()) >= limits.seen_s:
            yield trains, rolls


def _waits_more(own: float | None, other: float | None, limits: Thresholds) -> bool:
    """Whether a role waits long enough, and longer than its counterpart where that is known."""
    if own is None or own < limits.wait_share:
        return False
    return other is None or own - other >= limits.wait_lead


def _queues(evidence: Evidence, task: str) -> Iterator[QueueTrack]:
    """Yield all queues of a task."""
    for role in evidence.roles:
        if role.task == task:
            yield from role.queues


def _is_standing(queue: QueueTrack, limits: Thresholds) -> bool:
    """Whether a queue was hardly ever empty."""
    return len(queue.last) >= _LEAST_LOOKS and standing_share(queue.last) >= limits.standing_share


def _doubles(queue: QueueTrack, limits: Thresholds) -> Trend | None:
    """Return the trend of a queue that grows and doubles."""
    trend = growth(queue.start_s, queue.last, limits, limits.queue_growth, "low")
    return trend if trend is not None and trend.last >= 2 * trend.first else None


def _when_waiting(role: RoleTrack, limits: Thresholds) -> Spell:
    """Return the time from the first to the last stretch in which a role waited for long."""
    chosen = role.start_s[role.waiting >= limits.wait_share]
    return _span(chosen if len(chosen) else role.start_s, limits)


def _span(start_s: object, limits: Thresholds) -> Spell:
    return Spell(float(start_s[0]), float(start_s[-1]) + limits.stretch_s)  # type: ignore[index]


@finder("rollout-slow", Need.TRAINING, Need.WAITING)
def rollout_slow(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find training that waits more than its rollout, where no full buffer and no backlog explains it."""
    for training, rollout in _pairs(evidence, limits):
        waits, rollout_waits = training.waited_share, rollout.waited_share
        if waits is None or not _waits_more(waits, rollout_waits, limits):
            continue
        standing = [each.name for each in _queues(evidence, training.task) if _is_standing(each, limits)]
        # a buffer that is never empty feeds training; another queue that stands holds the rollout back
        if _EXPERIENCE in standing or any(name not in _FEEDING for name in standing):
            continue
        figures = {"training_waiting_share": waits, "covered_s": float(training.covered_s.sum())}
        other = f"{rollout.role} does not report its waits"
        if rollout_waits is not None:
            figures["rollout_waiting_share"] = rollout_waits
            other = f"{rollout.role} {rollout_waits:.0%}"
        seen = f"{training.name} waited {waits:.0%} of {duration(figures['covered_s'])}, {other}"
        takes, makes = training.capacity, rollout.mean_rate
        if takes is not None and makes is not None:
            figures |= {"training_takes_samples_per_s": takes, "rollout_makes_samples_per_s": makes}
            seen += f"; training could take {takes:.3g} samples/s, the rollout makes {makes:.3g}"
        yield finding(
            Level.WARNING,
            f"{training.task or 'training'}: rollout is slower than training consumes",
            _when_waiting(training, limits),
            seen,
            (
                "rollout has too few GPUs, a layout that is too slow, or a long tail; training stands still "
                "meanwhile",
                _advice(evidence, rollout, limits),
            ),
            bound_of(waits, f"{training.role}'s waiting"),
            figures,
            task=training.task,
            role=rollout.role,
        )


def _advice(evidence: Evidence, rollout: RoleTrack, limits: Thresholds) -> str:
    tails = long_tail.find(evidence, limits)
    if any(tail.task == rollout.task and rollout.role in (tail.role or "").split("+") for tail in tails):
        return (
            "do not add GPUs yet: most of the rollout's own rest while a few finish (long-tail); even them "
            "out with `mixed_layouts`, partial rollouts or a shorter longest response"
        )
    placement = evidence.placement
    sync = placement is not None and placement.couplings.get(rollout.task) == "sync"
    first = "let training go on meanwhile (coupling `async`, staleness_steps ≥ 1), or " if sync else ""
    return (
        f"{first}move GPUs to the rollout: correct its profile by what was seen (`libra-plan profile drift`) "
        "and solve again (`libra-plan solve … --out run/`)"
    )


@finder("training-slow", Need.TRAINING)
def training_slow(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find rollouts that wait more than their training, or fill the buffer between them."""
    for training, rollout in _pairs(evidence, limits):
        waits, training_waits = rollout.waited_share, training.waited_share
        buffers = (each for each in _queues(evidence, training.task) if each.name == _EXPERIENCE)
        grows = next(filter(None, (_doubles(each, limits) for each in buffers)), None)
        if grows is None and not _waits_more(waits, training_waits, limits):
            continue
        figures, seen = {"covered_s": float(rollout.covered_s.sum())}, []
        if waits is not None:
            figures["rollout_waiting_share"] = waits
            seen.append(f"{rollout.name} waited {waits:.0%} of {duration(figures['covered_s'])}")
        if training_waits is not None:
            figures["training_waiting_share"] = training_waits
            seen.append(f"{training.role} {training_waits:.0%}")
        if grows is not None:
            figures |= {"experience_first": grows.first, "experience_last": grows.last}
            seen.append(f"the experience buffer grew from {grows.first:.0f} to {grows.last:.0f}")
        yield finding(
            Level.WARNING,
            f"{rollout.task or 'training'}: training is slower than the rollout makes",
            _when_waiting(rollout, limits),
            ", ".join(seen),
            (
                "training has too few GPUs or too small micro-batches; samples grow stale in the buffer "
                "meanwhile",
                "raise the micro-batch as far as memory allows (`libra-plan batch`), then move GPUs to "
                "training (`libra-plan profile drift`, `libra-plan solve … --out run/`)",
            ),
            bound_of(waits or 0.0, f"{rollout.role}'s waiting"),
            figures,
            task=training.task,
            role=training.role,
        )


@finder("ranks-uneven", Need.ROLES, Need.WAITING)
def ranks_uneven(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find a data-parallel rank that has more to do than the others, which wait for it."""
    for role in evidence.roles:
        worked = {
            each.dp_rank: (each.covered_s - each.waited_s) / each.covered_s
            for each in role.ranks
            if each.waited_s is not None and each.covered_s >= limits.seen_s
        }
        if len(worked) < 2 or len(worked) < len(role.ranks):
            continue
        mean, slowest = fmean(worked.values()), max(worked, key=lambda rank: worked[rank])
        most = worked[slowest]
        if mean <= 0 or most < limits.rank_spread * mean:
            continue
        yield finding(
            Level.WARNING,
            f"{role.name}: rank {slowest} holds the others up",
            _span(role.start_s, limits),
            f"data-parallel rank {slowest} worked {most:.0%} of the time, the mean of {len(role.ranks)} "
            f"ranks {mean:.0%}",
            (
                "sequences are dealt out by number rather than by tokens, or that rank's GPU is slower",
                "pack by length (`libra_plan.fill_bins`); if the rank is the same with other data, compare "
                "its clocks and temperature with `libra-plan summary`",
            ),
            bound_of(most - mean, "the difference to the mean"),
            {"slowest_working_share": most, "mean_working_share": mean},
            task=role.task,
            role=role.role,
        )


@finder("backlog", Need.QUEUES)
def backlog(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find queues of other work that grow, or never empty while training waits."""
    for task in evidence.tasks:
        training = evidence.of_kind(task, *TRAINING)
        seen = [role.waited_share or 0.0 for role in training if role.covered_s.sum() >= limits.seen_s]
        waits = max(seen, default=0.0)
        for queue in _queues(evidence, task):
            if queue.name == _EXPERIENCE:  # `training-slow`
                continue
            grows = _doubles(queue, limits)
            stands = queue.name not in _FEEDING and _is_standing(queue, limits)
            if grows is not None or (stands and waits >= limits.wait_share):
                yield _backlog(evidence, task, queue, grows, waits, limits)


def _backlog(
    evidence: Evidence, task: str, queue: QueueTrack, grows: Trend | None, waits: float, limits: Thresholds
) -> Finding:
    longest, standing = float(queue.longest.max()), standing_share(queue.last)
    figures = {"last": float(queue.last[-1]), "longest": longest, "standing_share": standing}
    figures["training_waiting_share"] = waits
    seen = f"not empty in {standing:.0%} of the looks, {longest:.0f} at most"
    if grows is not None:
        figures["growth_per_s"] = grows.per_s
        seen += f", grown from {grows.first:.0f} to {grows.last:.0f} in {duration(grows.seconds)}"
    served = sum(role.mean_rate or 0.0 for role in evidence.of_kind(task, guess_kind(queue.name)))
    gain = unknown("not known: nobody counts what is served from the queue")
    if waits >= limits.wait_share:
        seen += f"; training waited {waits:.0%} of the time"
        gain = bound_of(waits, "training's waiting")
    elif grows is not None and served > 0:
        factor = 1 + grows.per_s / served
        gain = Gain("bound", factor, f"at most × {factor:.2f}, if all that comes were served (a bound)")
    return finding(
        Level.WARNING,
        f"{task + ': ' if task else ''}the {queue.name} queue does not empty",
        _span(queue.start_s, limits),
        seen,
        _WHY_QUEUED.get(
            guess_kind(queue.name),
            (
                f"whoever serves the {queue.name} queue is slower than what fills it",
                f"give the server of {queue.name} more room",
            ),
        ),
        gain,
        figures,
        task=task,
        role=queue.name,
    )


_WHY_QUEUED = {
    "reward": (
        "the reward model or verifier scores slower than trajectories come in",
        "give the reward role more GPUs or workers, or score while the rollout goes on: solve again with "
        "its profile corrected",
    ),
    "env": (
        "tool environments answer slower than the rollout asks",
        "raise the environments' `cpu_workers` (see host-cpu for whether cores are left), and limit the "
        "slowest tools by a time-out",
    ),
    "rollout": (
        "more requests are sent than the engines can take at once",
        "more engines or more key-value cache for the rollout: `libra-plan batch` bounds the concurrency",
    ),
}
