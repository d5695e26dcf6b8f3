"""Reads clusters whose nodes run NVIDIA's DCGM exporter: its own page, or a Prometheus that scrapes many.

Field meanings: DCGM's field identifiers and dcgm-exporter's etc/default-counters.csv.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from libra_plan.errors import InputError
from libra_plan.planner.telemetry.sample import GpuDetails, GpuSample, GpuState, MigInstance, NodeSample
from libra_plan.planner.telemetry.sources import (
    Clocks,
    LastSeen,
    SourceTimeouts,
    sample_of,
    without_duplicates,
)
from libra_plan.planner.telemetry.timeouts import TimedCalls

__all__ = ["DcgmSource", "Series", "fetch", "join_series", "parse_answer", "parse_page"]

_FIELDS = {  # in our units
    "DCGM_FI_DEV_GPU_UTIL": "utilization_percent",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "memory_busy_percent",
    "DCGM_FI_DEV_FB_TOTAL": "memory_total_mib",
    "DCGM_FI_DEV_FB_USED": "memory_used_mib",
    "DCGM_FI_DEV_FB_FREE": "memory_free_mib",
    "DCGM_FI_DEV_FB_RESERVED": "memory_reserved_mib",
    "DCGM_FI_DEV_POWER_USAGE": "power_w",
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock_mhz",
    "DCGM_FI_DEV_MEM_CLOCK": "memory_clock_mhz",
    "DCGM_FI_DEV_GPU_TEMP": "temperature_c",
    "DCGM_FI_PROF_NVLINK_TX_BYTES": "nvlink_tx_bytes_per_s",
    "DCGM_FI_PROF_NVLINK_RX_BYTES": "nvlink_rx_bytes_per_s",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "pcie_tx_bytes_per_s",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "pcie_rx_bytes_per_s",
}
_XID = "DCGM_FI_DEV_XID_ERRORS"
_ECC = {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "ecc_corrected", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc_uncorrected"}
_QUERY = '{__name__=~"DCGM_FI_(DEV|PROF)_.+"}'
# timestamp() returns a sample's own time only directly around a selector
_AGES = "time() - (timestamp(DCGM_FI_DEV_FB_USED) or timestamp(DCGM_FI_DEV_GPU_UTIL))"
_BLANK = 2.0**47  # DCGM_FP64_BLANK; integers have theirs far above
_INT32_BLANK = 0x7FFFFFF0
_MOST_BYTES = 64 * 2**20
_LIMIT_S = 10.0
_FORGET_S = 3600.0  # how long a missing GPU stays listed
_ADD_UP = ("memory_used_mib", "memory_free_mib", "memory_reserved_mib")
_MEMORY = ("memory_total_mib", "memory_used_mib", "memory_free_mib")

Fetch = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Series:
    """One value of one metric with its labels."""

    name: str
    labels: Mapping[str, str]
    value: float


class FetchError(Exception):
    """The metrics could not be fetched."""


def fetch(url: str) -> bytes:
    """Get a page, at most 64 MiB of it."""
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=_LIMIT_S) as page:
            body: bytes = page.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as problem:
        raise FetchError(f"{url}: {problem}") from None
    if len(body) > _MOST_BYTES:
        raise FetchError(f"{url}: more than {_MOST_BYTES // 2**20} MiB")
    return body


def parse_page(body: bytes) -> Iterator[Series]:
    """Read an exporter's page in the Prometheus text format."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        for family in text_string_to_metric_families(body.decode("utf-8", "replace")):
            for each in family.samples:
                if each.name.startswith("DCGM_FI_"):
                    yield Series(each.name, each.labels, float(each.value))
    except ValueError as problem:
        raise FetchError(f"not a page of metrics: {problem}") from None


def parse_answer(body: bytes) -> Iterator[Series]:
    """Read Prometheus' answer to an instant query."""
    try:
        answer: Any = msgspec.json.decode(body)
        if answer["status"] != "success":
            raise FetchError(f"Prometheus says: {answer.get('error', answer['status'])}")
        for each in answer["data"]["result"]:
            labels = {str(name): str(label) for name, label in dict(each["metric"]).items()}
            yield Series(labels.pop("__name__", ""), labels, float(each["value"][1]))
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, RecursionError) as problem:
        raise FetchError(f"not an answer of Prometheus: {type(problem).__name__}: {problem}") from None


def join_series(series: Iterable[Series], ages: Iterable[Series] = ()) -> dict[str, tuple[GpuSample, ...]]:
    """Join the series of each GPU; of a GPU that several jobs scrape the first one counts.

    The exporter's own page does not say how old its values are, so without `ages` they have none.
    """
    found: dict[tuple[str, str, str], _Gathered] = {}
    for each in series:
        key = _key(each.labels)
        if key is not None:
            gathered = found.setdefault(key, _Gathered(each.labels))
            if _known(each.value):
                gathered.add(each)
    for each in ages:
        aged = found.get(_key(each.labels) or ("", "", ""))
        if aged is not None and aged.age_s is None:
            aged.age_s = max(0.0, round(each.value, 3))
    nodes: dict[str, list[GpuSample]] = {}
    for (node, _, uuid), gathered in found.items():
        nodes.setdefault(node, []).append(gathered.sample(uuid))
    return {node: without_duplicates(sorted(gpus, key=_place)) for node, gpus in nodes.items()}


def _key(labels: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Return node, index and UUID of a series, None where it is of no GPU."""
    uuid = labels.get("UUID") or labels.get("uuid")
    node = labels.get("Hostname") or labels.get("node") or labels.get("instance") or "?"
    return None if uuid is None else (node, labels.get("gpu", ""), uuid)


def _place(gpu: GpuSample) -> tuple[int, str]:
    return (-1 if gpu.index is None else gpu.index), gpu.uuid or ""


def _known(value: float) -> bool:
    """Whether this is a value, not one of DCGM's codes for none."""
    return math.isfinite(value) and abs(value) < _BLANK and not _INT32_BLANK <= value <= _INT32_BLANK + 15


@dataclass
class _Gathered:
    """The series of one GPU; those of its MIG instances separately, since the parent's are not theirs."""

    labels: Mapping[str, str]
    readings: dict[str, float] = field(default_factory=dict)
    ecc: dict[str, int] = field(default_factory=dict)
    instances: dict[str, dict[str, float]] = field(default_factory=dict)
    xid: float | None = None
    age_s: float | None = None

    def add(self, series: Series) -> None:
        instance = series.labels.get("GPU_I_ID")
        name = _FIELDS.get(series.name)
        if instance:
            if name in _MEMORY:
                self.instances.setdefault(instance, {}).setdefault(name, series.value)
        elif name is not None:
            self.readings.setdefault(name, series.value)
        elif series.name in _ECC:
            self.ecc.setdefault(_ECC[series.name], int(series.value))
        elif series.name == _XID and self.xid is None:
            self.xid = series.value

    def sample(self, uuid: str) -> GpuSample:
        """Return the sample; `xids` holds the last error, which the exporter keeps reporting."""
        index = self.labels.get("gpu", "")
        readings = dict(self.readings)
        if all(name in readings for name in _ADD_UP):
            readings.setdefault("memory_total_mib", sum(readings[name] for name in _ADD_UP))
        instances = tuple(
            MigInstance(uuid=f"{uuid}/gi{number}", **memory)
            for number, memory in sorted(self.instances.items())
        )
        readable = bool(self.readings or instances)
        return GpuSample(
            uuid=uuid,
            index=int(index) if index.isdecimal() else None,
            name=self.labels.get("modelName"),
            state=GpuState.OK if readable else GpuState.UNREADABLE,
            why=None if readable else "no reading that is known here",
            age_s=self.age_s,
            xids=None if self.xid is None else (int(self.xid),) if self.xid else (),
            details=GpuDetails(
                mig=bool(instances) or None,
                instances=instances,
                ecc_corrected=self.ecc.get("ecc_corrected"),
                ecc_uncorrected=self.ecc.get("ecc_uncorrected"),
            ),
            **readings,
        )


class DcgmSource:
    """A live source over HTTP, one sample a node; a cluster that does not answer keeps its GPUs listed."""

    name = "dcgm"
    live = True

    def __init__(
        self, url: str, clocks: Clocks, timeouts: SourceTimeouts | None = None, get: Fetch = fetch
    ) -> None:
        try:
            parts = urlsplit(url)
        except ValueError:  # not an address in brackets
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InputError(
                "not a place to get metrics from",
                got=url,
                allowed="http://NODE:9400/metrics (DCGM exporter) or http://HOST:9090 (Prometheus)",
            )
        self._url = url.rstrip("/")
        self._page = parts.path.rstrip("/").endswith("/metrics")
        self._clocks = clocks
        self._limit_s = max((timeouts or SourceTimeouts()).look_s, 2 * _LIMIT_S)
        self._get = get
        self._calls: TimedCalls[dict[str, tuple[GpuSample, ...]]] = TimedCalls("dcgm", clocks.monotonic_s)
        self._seen = LastSeen(_FORGET_S)
        self._xid_before: dict[str | None, tuple[int, ...] | None] = {}

    def read(self) -> tuple[NodeSample, ...]:
        """Fetch the metrics once."""
        result = self._calls.ask(self._look, self._limit_s)
        now_s = self._clocks.monotonic_s()
        fault, nodes = None, {}
        state, why = GpuState.LATE, "its metrics do not answer"
        if result is None:
            fault = f"{self._url} does not answer within {self._limit_s:g} s"
        elif result.value is None:
            fault = str(result.error)
        else:
            state, why = GpuState.LOST, "its metrics are gone"
            nodes = {node: tuple(map(self._new_xids, gpus)) for node, gpus in result.value.items()}
        listed = self._seen.with_missing(nodes, now_s, now_s, state, why) or {self._url: []}
        return tuple(
            sample_of(self, self._clocks, node, now_s, gpus, fault=fault) for node, gpus in listed.items()
        )

    def close(self) -> None:
        """Stop the thread."""
        self._calls.close()

    def _look(self) -> dict[str, tuple[GpuSample, ...]]:
        if self._page:
            return join_series(parse_page(self._get(self._url)))
        ask = f"{self._url}/api/v1/query?"
        series = list(parse_answer(self._get(ask + urlencode({"query": _QUERY}))))
        return join_series(series, parse_answer(self._get(ask + urlencode({"query": _AGES}))))

    def _new_xids(self, gpu: GpuSample) -> GpuSample:
        """Keep an error only in the first sample that has it."""
        before = self._xid_before.get(gpu.uuid)
        self._xid_before[gpu.uuid] = gpu.xids
        return msgspec.structs.replace(gpu, xids=()) if gpu.xids and gpu.xids == before else gpu
