"""Every threshold of the doctor in one place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Thresholds"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a finding is reported. Shares are of the time in which the reading was known.

    `window_s` and `stretch_s` are the lengths in which samples and counters are summed up; a gap
    longer than `gap_s` is time that nobody saw. GPUs are idle up to `idle_percent` and busy from
    `busy_percent`. What must show at least: `seen_s` seconds of readings for a verdict on shares;
    `wait_share` of a role's time waiting, and `wait_lead` more than its counterpart waits;
    `idle_share` of the GPUs' time, and one pause of `idle_s`; `memory_share`, the most of a GPU's
    memory that counts as little used; `cpu_percent` in `cpu_share` of the time; `host_free_share`
    of the host's memory; traffic in bytes/s by link, in `sync_share` of the time, while a GPU is
    below `slack_percent` or draws less than `slack_power` of its limit; `tail_share` of the time a
    role works in which at most half of its GPUs do; `rank_spread`, the busiest rank over the mean;
    memory that grows by `growth_share` of the GPU's, is certain to `certainty` and full within
    `ahead_s` (no further ahead than `ahead_spans` times what was seen), or `soon_s` for the highest
    level; `moves` of a task within `moves_s`, or
    `lost_share` of the time lost in moves; `standing_share` of the looks at a queue not empty, or a
    queue that grows by `queue_growth` items and doubles.
    """

    window_s: float = 10.0
    stretch_s: float = 60.0
    gap_s: float = 60.0
    seen_s: float = 300.0
    idle_percent: float = 5.0
    busy_percent: float = 90.0
    wait_share: float = 0.2
    wait_lead: float = 0.1
    idle_share: float = 0.1
    idle_s: float = 60.0
    memory_share: float = 0.5
    cpu_percent: float = 90.0
    cpu_share: float = 0.1
    host_free_share: float = 0.05
    network_bytes_per_s: float = 1e9
    nvlink_bytes_per_s: float = 2e10
    pcie_bytes_per_s: float = 1e10
    slack_percent: float = 50.0
    slack_power: float = 0.5
    sync_share: float = 0.1
    tail_share: float = 0.15
    rank_spread: float = 1.2
    growth_share: float = 0.02
    certainty: float = 1e-4
    ahead_s: float = 86400.0
    ahead_spans: float = 4.0
    soon_s: float = 3600.0
    moves: int = 4
    moves_s: float = 3600.0
    lost_share: float = 0.1
    standing_share: float = 0.9
    queue_growth: float = 10.0
