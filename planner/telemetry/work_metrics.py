"""Write the latest rates in the Prometheus text format, for a node exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from libra_plan.planner.telemetry.throughput import Rate

__all__ = ["exposition"]

_GAUGES = {
    "tokens_per_second": ("tokens_per_s", "Tokens a role gets done a second, all ranks."),
    "samples_per_second": ("samples_per_s", "Samples a role gets done a second, all ranks."),
    "episodes_per_second": ("episodes_per_s", "Episodes a role gets done a second, all ranks."),
    "steps_per_second": ("steps_per_s", "Steps a role takes a second."),
    "waiting_ratio": ("idle", "Share of time that a role's ranks wait for others."),
    "staleness_versions": ("staleness", "Policy versions that trained samples lag, mean."),
}


def exposition(rates: Sequence[Rate]) -> str:
    """Give the newest stretch of every role as gauges; what is unknown is left out."""
    latest = {(rate.task, rate.role): rate for rate in rates}  # stretches of a role are in order
    lines: list[str] = []
    for name, (attribute, meaning) in _GAUGES.items():
        known = [(each, getattr(each, attribute)) for each in latest.values()]
        samples = [
            f"libra_plan_{name}{{{_labels(each)}}} {value!r}" for each, value in known if value is not None
        ]
        lines += _family(name, meaning, samples)
    queues = [
        f'libra_plan_queue_length{{{_labels(each)},queue="{_escaped(queue.name)}"}} {queue.last!r}'
        for each in latest.values()
        for queue in each.queues
    ]
    lines += _family("queue_length", "Items that wait in a queue.", queues)
    return "".join(f"{line}\n" for line in lines)


def _family(name: str, meaning: str, samples: list[str]) -> Iterator[str]:
    if samples:
        yield f"# HELP libra_plan_{name} {meaning}"
        yield f"# TYPE libra_plan_{name} gauge"
        yield from samples


def _labels(rate: Rate) -> str:
    return f'task="{_escaped(rate.task)}",role="{_escaped(rate.role)}"'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
