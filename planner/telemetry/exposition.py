"""Prometheus metrics of samples and of rates of work. What is unknown is left out, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.sample import HOST_READINGS, READINGS, GpuState, NodeSample

if TYPE_CHECKING:
    from prometheus_client import Metric

    from libra_plan.planner.telemetry.throughput import Rate

__all__ = ["Exposition", "parse_address", "rates_as_metrics"]

_LOOPBACK = "127.0.0.1"
_PREFIX = "libra_plan"
_GPU_LABELS = ("node", "gpu", "uuid", "model")
# Prometheus wants base units; a reading's name carries ours
_UNITS = {
    "_mib": ("_bytes", 2.0**20),
    "_percent": ("_ratio", 0.01),
    "_mhz": ("_hertz", 1e6),
    "_w": ("_watts", 1.0),
    "_c": ("_celsius", 1.0),
    "_bytes_per_s": ("_bytes_per_second", 1.0),
}
_RATES = {
    "tokens_per_second": ("tokens_per_s", "Tokens a role gets done a second, all ranks."),
    "samples_per_second": ("samples_per_s", "Samples a role gets done a second, all ranks."),
    "episodes_per_second": ("episodes_per_s", "Episodes a role gets done a second, all ranks."),
    "steps_per_second": ("steps_per_s", "Steps a role takes a second."),
    "waiting_ratio": ("idle", "Share of time that a role's ranks wait for others."),
    "staleness_versions": ("staleness", "Policy versions that trained samples lag, mean."),
}

_Row = tuple[tuple[str, ...], "float | None"]


def parse_address(text: str) -> tuple[str, int]:
    """Parse `PORT` or `HOST:PORT`; without a host only this machine can ask."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 <= int(port) < 65536:
        raise InputError(
            "not an address to serve metrics on",
            got=text,
            allowed="PORT or HOST:PORT, as 9401 or 0.0.0.0:9401",
        )
    return host.strip("[]") or _LOOPBACK, int(port)


class Exposition:
    """Serves metrics over HTTP in a thread of its own, from the newest samples it was shown."""

    def __init__(self, address: tuple[str, int]) -> None:
        from prometheus_client import CollectorRegistry, start_http_server

        self._newest: dict[str, NodeSample] = {}
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        host, port = address
        try:
            self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        except OSError as problem:
            raise InputError(
                "metrics cannot be served there",
                got=f"{host}:{port}: {problem.strerror}",
                way_out="name a free port with --prometheus",
            ) from None

    @property
    def port(self) -> int:
        """The port that is served; with port 0 the system chose one."""
        return int(self._server.server_port)

    def show(self, samples: Sequence[NodeSample]) -> None:
        """Serve these samples from now on."""
        self._newest = {**self._newest, **{sample.node: sample for sample in samples}}

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of the newest samples."""
        samples = tuple(self._newest.values())
        yield from _gpu_metrics(samples)
        yield from _host_metrics(samples)


def _gauge(name: str, meaning: str, labels: Sequence[str], rows: Iterable[_Row]) -> Metric:
    """Build a family of gauges from the rows whose value is known."""
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(f"{_PREFIX}_{name}", meaning, labels=labels)
    for own, value in rows:
        if value is not None:
            family.add_metric(own, value)
    return family


def _gpu_metrics(samples: Sequence[NodeSample]) -> Iterator[Metric]:
    gpus = [
        ((sample.node, "" if gpu.index is None else str(gpu.index), gpu.uuid or "", gpu.name or ""), gpu)
        for sample in samples
        for gpu in sample.gpus
    ]
    for reading in READINGS:
        name, factor = _in_base_unit(reading)
        rows = ((labels, _scaled(getattr(gpu, reading), factor)) for labels, gpu in gpus)
        yield _gauge(f"gpu_{name}", f"{reading} of a GPU", _GPU_LABELS, rows)
    readable = [(labels, float(gpu.state is GpuState.OK)) for labels, gpu in gpus]
    yield _gauge("gpu_readable", "1: the GPU's readings are known", _GPU_LABELS, readable)
    ages = [(labels, gpu.age_s) for labels, gpu in gpus]
    yield _gauge("gpu_age_seconds", "seconds since the last good readings", _GPU_LABELS, ages)


def _host_metrics(samples: Sequence[NodeSample]) -> Iterator[Metric]:
    hosts = [((sample.node,), sample.host) for sample in samples if sample.host is not None]
    for reading in HOST_READINGS:
        name, factor = _in_base_unit(reading)
        rows = ((labels, _scaled(getattr(host, reading), factor)) for labels, host in hosts)
        yield _gauge(f"host_{name}", f"{reading} of a node", ("node",), rows)
    stamps = [((sample.node,), sample.taken_utc.timestamp()) for sample in samples]
    yield _gauge("sample_timestamp_seconds", "when the newest sample was taken", ("node",), stamps)


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _in_base_unit(reading: str) -> tuple[str, float]:
    unit = next(unit for unit in _UNITS if reading.endswith(unit))
    name, factor = _UNITS[unit]
    return reading.removesuffix(unit) + name, factor


def rates_as_metrics(rates: Sequence[Rate]) -> str:
    """Return the newest stretch of every role as gauges, for a node exporter's textfile collector."""
    from prometheus_client import CollectorRegistry, generate_latest

    newest = {(rate.task, rate.role): rate for rate in rates}  # stretches of a role are in order
    families = [
        _gauge(name, meaning, ("task", "role"), [(key, getattr(rate, own)) for key, rate in newest.items()])
        for name, (own, meaning) in _RATES.items()
    ]
    queues = [((*key, queue.name), queue.last) for key, rate in newest.items() for queue in rate.queues]
    families.append(_gauge("queue_length", "Items that wait in a queue.", ("task", "role", "queue"), queues))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families([family for family in families if family.samples]))
    return generate_latest(registry).decode()


class _Families:
    """A collector of metrics that were computed before."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """Return the metrics."""
        return self._families
