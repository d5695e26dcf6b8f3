"""Write the latest rates of roles as Prometheus metrics, for a node exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from libra_plan.planner.telemetry.throughput import Rate

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["work_metrics"]

_GAUGES = {
    "tokens_per_second": ("tokens_per_s", "Tokens a role gets done a second, all ranks."),
    "samples_per_second": ("samples_per_s", "Samples a role gets done a second, all ranks."),
    "episodes_per_second": ("episodes_per_s", "Episodes a role gets done a second, all ranks."),
    "steps_per_second": ("steps_per_s", "Steps a role takes a second."),
    "waiting_ratio": ("idle", "Share of time that a role's ranks wait for others."),
    "staleness_versions": ("staleness", "Policy versions that trained samples lag, mean."),
}


def work_metrics(rates: Sequence[Rate]) -> str:
    """Give the newest stretch of every role as gauges; what is unknown is left out."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    latest = {(rate.task, rate.role): rate for rate in rates}  # stretches of a role are in order
    registry.register(_Newest(tuple(latest.values())))
    return generate_latest(registry).decode()


@dataclass(frozen=True)
class _Newest:
    rates: tuple[Rate, ...]

    def collect(self) -> Iterator[Metric]:
        """Give a family for every measure that any role has."""
        from prometheus_client.core import GaugeMetricFamily

        for name, (attribute, meaning) in _GAUGES.items():
            family = GaugeMetricFamily(f"libra_plan_{name}", meaning, labels=("task", "role"))
            for rate in self.rates:
                value = getattr(rate, attribute)
                if value is not None:
                    family.add_metric((rate.task, rate.role), value)
            if family.samples:
                yield family
        labels = ("task", "role", "queue")
        family = GaugeMetricFamily("libra_plan_queue_length", "Items that wait in a queue.", labels=labels)
        for rate in self.rates:
            for queue in rate.queues:
                family.add_metric((rate.task, rate.role, queue.name), queue.last)
        if family.samples:
            yield family
