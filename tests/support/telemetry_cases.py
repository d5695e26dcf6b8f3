"""Samples, recordings and clocks that telemetry tests share."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fake_nvml import Hands

from libra_plan.planner.telemetry.recording import SCHEMA_VERSION, Header, Recorder, Retention
from libra_plan.planner.telemetry.sample import GpuDetails, GpuSample, HostSample, NodeSample, ProcessUse
from libra_plan.planner.telemetry.sources import Clocks

DATA = Path(__file__).parents[1] / "data" / "telemetry"


def stamp(utc_s: float) -> datetime:
    """Return a time of day in UTC."""
    return datetime.fromtimestamp(utc_s, timezone.utc)


def clocks_of(hands: Hands) -> Clocks:
    """Return clocks that a test moves by hand."""
    return Clocks(lambda: hands.utc_s, lambda: hands.monotonic_s)


def gpu(index: int = 0, utilization: float | None = 50.0, **more: Any) -> GpuSample:
    """Return a GPU that is well."""
    return GpuSample(
        uuid=f"GPU-{index}",
        index=index,
        name="NVIDIA H200",
        age_s=0.0,
        utilization_percent=utilization,
        memory_total_mib=143771.0,
        memory_used_mib=1000.0,
        **more,
    )


def sample(
    at_s: float, *gpus: GpuSample, node: str = "node0", utc_s: float | None = None, **more: Any
) -> NodeSample:
    """Return a sample taken `at_s` seconds on the monotonic clock."""
    return NodeSample(
        node=node,
        taken_utc=stamp(1.7e9 + at_s if utc_s is None else utc_s),
        monotonic_s=at_s,
        source="test",
        host=HostSample(cpu_percent=10.0, cpu_cores=8, memory_free_mib=1000.0),
        gpus=gpus or (gpu(),),
        **more,
    )


def held_by(*processes: ProcessUse, **more: Any) -> GpuDetails:
    """Return details with processes."""
    return GpuDetails(age_s=0.0, processes=processes, **more)


def recorder(
    folder: Path, hands: Hands, said: list[str] | None = None, retention: Retention | None = None
) -> Recorder:
    """Return a recorder; what it says goes to `said`."""
    header = Header(
        schema_version=SCHEMA_VERSION,
        node="node0",
        source="test",
        run=f"run-{hands.utc_s}",
        began_utc=stamp(hands.utc_s),
        interval_s=1.0,
    )
    return Recorder(folder, header, clocks_of(hands), ([] if said is None else said).append, retention)
