"""GPUs that hang, idle, wait for links, or work while most GPUs of their role have nothing left."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from libra_plan.errors import few
from libra_plan.planner.doctor.evidence import TRAINING, Evidence, Group
from libra_plan.planner.doctor.finding import (
    Finding,
    Level,
    Need,
    bound_of,
    duration,
    finder,
    finding,
    unknown,
)
from libra_plan.planner.doctor.settings import Thresholds
from libra_plan.planner.doctor.tracks import Floats, Spell, spells

__all__ = ["gpus_idle", "hang", "long_tail", "sync_traffic"]

_QUIET_PAUSES = 3.0
_LEAST_QUIET_S = 60.0  # a checkpoint or an evaluation takes as long
_HELD_SHARE = 0.05  # of a GPU's memory: with more, some process holds it
_RESTS, _WORKS = 0.9, 0.5  # shares of a window that are idle


@finder("hang", Need.GPUS, Need.ROLES, Need.JOINED)
def hang(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find GPUs that are busy to the end while nothing gets done (A049): progress counts, not utilization."""
    groups = [group for group in evidence.groups if group.task is not None]
    if evidence.placement is None and len(evidence.tasks) == 1:
        (task,) = evidence.tasks
        groups = [Group(task or "the task", task, (), evidence.gpus)]
    for group in groups:
        own = [
            pace
            for (task, role), pace in evidence.paces
            if task == group.task and (not group.roles or role in group.roles)
        ]
        if not own:
            continue
        last_s, pause_s = max(each.last_s for each in own), max(each.longest_pause_s for each in own)
        when = Spell(last_s, group.span(limits).ended_s)
        if when.length_s <= max(_QUIET_PAUSES * pause_s, _LEAST_QUIET_S):
            continue
        busy = group.mean("utilization_percent", "known_s", last_s)
        power = group.mean("power_w", "seconds", last_s)
        if busy is None or busy < limits.busy_percent:
            continue
        figures = {"quiet_s": when.length_s, "usual_pause_s": pause_s, "utilization_percent": busy}
        drawn = "" if power is None else f" at {power:.0f} W"
        yield finding(
            Level.CRITICAL,
            f"{group.name} hangs: busy GPUs, no progress",
            when,
            f"no progress for {duration(when.length_s)} (longest pause before: {duration(pause_s)}) while "
            f"its GPUs are {busy:.0f} % busy{drawn}",
            (
                "kernels that wait for one another spin: a collective that a rank never joined, or a dead "
                "peer; low power at full utilization is its mark",
                "find the rank that is behind (stacks by py-spy, NCCL flight recorder), then restart the "
                "task from its checkpoint; a time limit on collectives turns the next one into an error",
            ),
            unknown("all of the task's work from then on"),
            figures if power is None else figures | {"power_w": power},
            **{**group.whose(), "role": None},
        )


@finder("gpus-idle", Need.GPUS)
def gpus_idle(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find GPUs that are idle long enough to be used; unknown time counts as neither idle nor busy."""
    for group in evidence.groups:
        known_s, idle_s = group.total("known_s"), group.total("idle_s")
        if known_s < limits.seen_s or idle_s < limits.idle_share * known_s:
            continue
        # nearly all of a window: the sample in which work ends is half of each
        pauses = [
            (pause.length_s, pause, gpu)
            for gpu in group.gpus
            for pause in spells(
                gpu.start_s,
                (gpu.known_s > 0) & (gpu.idle_s >= 0.9 * gpu.seconds),
                limits.window_s,
                limits.gap_s,
            )
        ]
        longest_s, pause, longest = max(pauses, key=lambda each: each[0], default=(0.0, None, None))
        if pause is None or longest is None or longest_s < limits.idle_s:
            continue
        share, held = idle_s / known_s, _held_share(group)
        resting = [gpu for gpu in group.gpus if gpu.idle_s.sum() > 0]
        figures = {"idle_share": share, "idle_gpu_hours": idle_s / 3600, "longest_pause_s": longest_s}
        seen = (
            f"idle {share:.0%} of {known_s / 3600:.3g} GPU-hours ({few([gpu.name for gpu in resting], 4)}), "
            f"{duration(longest_s)} on end on {longest.name}"
        )
        if held is not None:
            figures["memory_held_share"] = held
            seen += f"; memory was held in {held:.0%} of that"
        yield finding(
            Level.WARNING,
            f"{group.name}: GPUs are idle",
            pause,
            seen,
            _why_idle(group, held),
            bound_of(share, "the idle time of these GPUs"),
            figures,
            **group.whose(resting),
        )


def _held_share(group: Group) -> float | None:
    """Return the share of idle time in which memory was held; None where memory is not known."""
    share, idle_s = group.joined("used_low_mib") / group.joined("limit_mib"), group.joined("idle_s")
    known_s = float(idle_s[share >= 0].sum())
    return float(idle_s[share > _HELD_SHARE].sum()) / known_s if known_s else None


def _why_idle(group: Group, held: float | None) -> tuple[str, str]:
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


@finder("sync-traffic", Need.GPUS, Need.TRAFFIC)
def sync_traffic(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find GPUs that wait for links while gradients or weights are passed on."""
    for group in evidence.groups:
        known_s, waits_s = group.total("traffic_known_s"), group.total("traffic_s")
        if known_s < limits.seen_s or waits_s < limits.sync_share * known_s:
            continue
        starts = group.joined("start_s")[group.joined("traffic_s") > 0]
        share = waits_s / known_s
        yield finding(
            Level.WARNING,
            f"{group.name}: GPUs wait for the network",
            Spell(float(starts.min()), float(starts.max()) + limits.window_s),
            f"in {share:.0%} of the time a link was busy (host network ≥ "
            f"{limits.network_bytes_per_s / 1e9:g}, NVLink ≥ {limits.nvlink_bytes_per_s / 1e9:g}, PCIe ≥ "
            f"{limits.pcie_bytes_per_s / 1e9:g} GB/s) while the GPU was at most {limits.slack_percent:g} % "
            f"busy or drew at most {limits.slack_power:.0%} of its power limit",
            _why_traffic(evidence, group),
            bound_of(share, "that waiting"),
            {"sync_share": share},
            **group.whose([gpu for gpu in group.gpus if gpu.traffic_s.any()]),
        )


def _why_traffic(evidence: Evidence, group: Group) -> tuple[str, str]:
    known = {} if evidence.placement is None else evidence.placement.kinds
    kinds = {kind for (task, role), kind in known.items() if task == group.task and role in group.roles}
    if kinds.intersection(TRAINING):
        return (
            "gradients (or weights, for the rollout) are exchanged over a link that is too slow for their "
            "size",
            "keep tensor-parallel ranks within an NVLink domain, accumulate more micro-batches between "
            "exchanges, and state the nodes' bandwidth in cluster.yaml so that the planner counts it",
        )
    if "rollout" in kinds:
        return (
            "new weights reach the rollout over a link that is too slow for their size",
            "pass weights on less often (staleness_steps), from device to device rather than over the host, "
            "or place rollout and training in one node or NVLink domain",
        )
    return (
        "gradients or weights are passed on over a link that is too slow for their size",
        "name the roles with --manifest to see which; keep those that exchange most in one node or NVLink "
        "domain",
    )


@finder("long-tail", Need.GPUS, Need.PLACEMENT)
def long_tail(evidence: Evidence, limits: Thresholds) -> Iterator[Finding]:
    """Find roles of which at least half of the GPUs have nothing left while others work (A037, A038)."""
    for group in evidence.groups:
        if not group.roles or len(group.gpus) < 2:
            continue
        starts, idle = _idle_shares(group)
        active = (idle < _WORKS).any(axis=0) & ~np.isnan(idle).any(axis=0)
        tail = active & ((idle >= _RESTS).mean(axis=0) >= 0.5)
        active_s, tail_s = float(active.sum()) * limits.window_s, float(tail.sum()) * limits.window_s
        if active_s < limits.seen_s or tail_s < limits.tail_share * active_s:
            continue
        wasted_s = float(idle[:, tail].mean(axis=0).sum()) * limits.window_s
        yield finding(
            Level.WARNING,
            f"{group.name}: a few GPUs work while the others rest",
            Spell(float(starts[tail][0]), float(starts[tail][-1]) + limits.window_s),
            f"in {tail_s / active_s:.0%} of {duration(active_s)} of work at least half of its "
            f"{len(group.gpus)} GPUs were idle",
            (
                "the longest trajectories (or requests sent one after the other) keep few GPUs busy to the "
                "end of the step",
                "do not add GPUs; spread the load: `mixed_layouts`, partial rollouts, requests in parallel, "
                "or let the next step's rollout begin meanwhile (coupling `async`)",
            ),
            bound_of(wasted_s / active_s, "the rest in the tail"),
            {"tail_share": tail_s / active_s, "active_s": active_s, "tail_s": tail_s},
            **group.whose(),
        )


def _idle_shares(group: Group) -> tuple[Floats, Floats]:
    """Return windows, and a row of idle shares for each GPU; NaN where it is not known."""
    starts = np.unique(group.joined("start_s"))
    shares = np.full((len(group.gpus), len(starts)), np.nan)
    for row, gpu in zip(shares, group.gpus, strict=True):
        known = gpu.known_s > 0
        row[np.searchsorted(starts, gpu.start_s[known])] = gpu.idle_s[known] / gpu.known_s[known]
    return starts, shares
