"""Recordings that show one thing, for the tests of the doctor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from telemetry_cases import stamp

from libra_plan.planner.doctor import Diagnosis, Evidence, Finding, Thresholds, gather, judge
from libra_plan.planner.doctor.evidence import Holder, Placement
from libra_plan.planner.doctor.fold import SampleFold
from libra_plan.planner.doctor.tracks import MovedTask
from libra_plan.planner.doctor.work import WorkFold
from libra_plan.planner.telemetry.recording import RecordedSample
from libra_plan.planner.telemetry.sample import GpuDetails, GpuSample, HostSample, NodeSample
from libra_plan.planner.telemetry.work_windows import WorkWindow

UTC_S = 1.7e9
TOTAL_MIB = 140_000.0
POWER_LIMITED = GpuDetails(age_s=0.0, power_limit_w=700.0)


def card(index: int = 0, **readings: Any) -> GpuSample:
    """Return a GPU that works on 60 % of its memory and reports no traffic."""
    return GpuSample(
        **{
            "uuid": f"GPU-{index}",
            "index": index,
            "utilization_percent": 95.0,
            "memory_total_mib": TOTAL_MIB,
            "memory_used_mib": 0.6 * TOTAL_MIB,
            "power_w": 600.0,
            "details": POWER_LIMITED,
            **readings,
        }
    )


def computer(**readings: Any) -> HostSample:
    """Return a host that is well."""
    known = {"cpu_percent": 30.0, "cpu_cores": 64, "memory_total_mib": 1e6}
    return HostSample(**{**known, "memory_used_mib": 3e5, "memory_free_mib": 7e5, **readings})


def play(
    seconds: float,
    look: Callable[[float], Iterable[GpuSample]] = lambda at_s: (card(),),
    *,
    host: Callable[[float], HostSample | None] = lambda at_s: computer(),
    node: str = "node0",
    every_s: float = 5.0,
) -> Iterator[RecordedSample]:
    """Play looks at a node; `look` and `host` say what is seen at a second."""
    for number in range(int(seconds / every_s) + 1):
        at_s = number * every_s
        yield RecordedSample(
            "run",
            NodeSample(
                node=node,
                taken_utc=stamp(UTC_S + at_s),
                monotonic_s=at_s,
                source="test",
                host=host(at_s),
                gpus=tuple(look(at_s)),
            ),
        )


def work(
    role: str,
    seconds: float,
    fields: Callable[[float], dict[str, Any]] = lambda at_s: {},
    *,
    task: str = "t",
    rank: int = 0,
    every_s: float = 10.0,
    **fixed: Any,
) -> Iterator[WorkWindow]:
    """Return windows of a rank, each of `every_s` seconds; `fields` adds to the one that ends at a second."""
    for number in range(int(seconds / every_s)):
        end_s = (number + 1) * every_s
        known = {"tokens": 1000.0, "samples": 10.0, **fixed, **fields(end_s)}
        yield WorkWindow(
            start_s=end_s - every_s,
            end_s=end_s,
            utc_s=UTC_S + end_s,
            task=task,
            role=role,
            dp_rank=rank,
            source=f"{task}-{role}-{rank}",
            clock="boot",
            **known,
        )


def placed(couplings: dict[str, str] | None = None, **roles: Iterable[int]) -> Placement:
    """Return a placement in which task `t` holds GPUs of node0 by role."""
    holders: dict[str, tuple[Holder, ...]] = {f"node0:{index}": () for index in range(8)}
    for role, indices in roles.items():
        for index in indices:
            holders[f"node0:{index}"] += (Holder("t", role),)
    kinds = {"actor": "actor_train", "rollout": "rollout"}
    return Placement({}, holders, {("t", role): kinds.get(role, role) for role in roles}, couplings or {})


def evidence_of(
    played: Iterable[RecordedSample] = (),
    windows: Iterable[WorkWindow] = (),
    placement: Placement | None = None,
    moves: list[MovedTask] | None = None,
    limits: Thresholds | None = None,
) -> Evidence:
    """Fold recordings."""
    samples, counts = SampleFold(limits or Thresholds()), WorkFold(limits or Thresholds())
    samples.add_all(played)
    counts.add_all(windows)
    return gather(samples, counts, placement, moves)


def look(*recordings: Any, **more: Any) -> Diagnosis:
    """Diagnose recordings."""
    return judge(evidence_of(*recordings, **more))


def codes(diagnosis: Diagnosis) -> list[str]:
    """Return the codes found, in order."""
    return [each.code for each in diagnosis.findings]


def only(diagnosis: Diagnosis) -> Finding:
    """Return the one finding there must be."""
    assert len(diagnosis.findings) == 1, codes(diagnosis)
    return diagnosis.findings[0]
