"""Serve the newest sample as Prometheus metrics. What is unknown is left out, never 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.sample import HOST_READINGS, READINGS, GpuSample, GpuState, Sample

if TYPE_CHECKING:
    from prometheus_client import Metric

__all__ = ["Exposition", "parse_address"]

_LOOPBACK = "127.0.0.1"
_PREFIX = "libra_plan"
_GPU_LABELS = ("node", "gpu", "uuid", "model")
# Prometheus wants base units; a reading's name carries ours
_UNITS = {"_mib": ("_bytes", 2.0**20), "_percent": ("_ratio", 0.01), "_mhz": ("_hertz", 1e6)}
_PLAIN = {"_w": "_watts", "_c": "_celsius", "_bytes_per_s": "_bytes_per_second"}


def parse_address(text: str) -> tuple[str, int]:
    """Read `PORT` or `HOST:PORT`; without a host only this machine can ask."""
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

        self._newest: dict[str, Sample] = {}
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
        """Give the port that is served; with port 0 the system chose one."""
        return int(self._server.server_port)

    def show(self, samples: Sequence[Sample]) -> None:
        """Serve these from now on."""
        self._newest = {**self._newest, **{sample.node: sample for sample in samples}}

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def collect(self) -> Iterator[Metric]:
        """Give every metric of the newest samples."""
        samples = tuple(self._newest.values())
        yield from _gpu_metrics(samples)
        yield from _host_metrics(samples)


def _gpu_metrics(samples: Sequence[Sample]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    gpus = [(_labels(sample, gpu), gpu) for sample in samples for gpu in sample.gpus]
    for reading in READINGS:
        name, factor = _metric(reading)
        family = GaugeMetricFamily(f"{_PREFIX}_gpu_{name}", f"{reading} of a GPU", labels=_GPU_LABELS)
        for labels, gpu in gpus:
            value = getattr(gpu, reading)
            if value is not None:
                family.add_metric(labels, value * factor)
        yield family
    up = GaugeMetricFamily(f"{_PREFIX}_gpu_readable", "1: the GPU's readings are known", labels=_GPU_LABELS)
    age = GaugeMetricFamily(
        f"{_PREFIX}_gpu_age_seconds", "seconds since the last good readings", labels=_GPU_LABELS
    )
    for labels, gpu in gpus:
        up.add_metric(labels, float(gpu.state is GpuState.OK))
        if gpu.age_s is not None:
            age.add_metric(labels, gpu.age_s)
    yield from (up, age)


def _host_metrics(samples: Sequence[Sample]) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily

    for reading in HOST_READINGS:
        name, factor = _metric(reading)
        family = GaugeMetricFamily(f"{_PREFIX}_host_{name}", f"{reading} of a node", labels=("node",))
        for sample in samples:
            value = None if sample.host is None else getattr(sample.host, reading)
            if value is not None:
                family.add_metric((sample.node,), value * factor)
        yield family
    stamp = GaugeMetricFamily(
        f"{_PREFIX}_sample_timestamp_seconds", "when the newest sample was taken", labels=("node",)
    )
    for sample in samples:
        stamp.add_metric((sample.node,), sample.taken_utc.timestamp())
    yield stamp


def _labels(sample: Sample, gpu: GpuSample) -> tuple[str, ...]:
    return sample.node, "" if gpu.index is None else str(gpu.index), gpu.uuid or "", gpu.name or ""


def _metric(reading: str) -> tuple[str, float]:
    for unit, (name, factor) in _UNITS.items():
        if reading.endswith(unit):
            return reading.removesuffix(unit) + name, factor
    for unit, name in _PLAIN.items():
        if reading.endswith(unit):
            return reading.removesuffix(unit) + name, 1.0
    return reading, 1.0
