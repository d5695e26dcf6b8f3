"""Clusters whose nodes have agents already: DCGM's exporter, alone or through Prometheus."""

from __future__ import annotations

import http.server
import threading
from urllib.parse import parse_qs, urlsplit

import pytest
from fake_nvml import Hands
from telemetry_cases import DATA, clocks_of

from libra_plan.errors import InputError
from libra_plan.planner.telemetry import dcgm
from libra_plan.planner.telemetry.dcgm import (
    DcgmSource,
    FetchError,
    fetch,
    join_series,
    parse_answer,
    parse_page,
)
from libra_plan.planner.telemetry.sample import READINGS, GpuState

PAGE = (DATA / "dcgm_exporter.txt").read_bytes()
VALUES = (DATA / "prometheus_values.json").read_bytes()
AGES = (DATA / "prometheus_ages.json").read_bytes()


def source(get, hands=None, url="http://node-a:9400/metrics"):
    return DcgmSource(url, clocks_of(hands or Hands()), get=get)


def test_a_page_of_the_exporter_becomes_gpus():
    """Units are DCGM's own: MiB, W, MHz, bytes a second; total is what its three parts add up to."""
    gpus = join_series(parse_page(PAGE))["node-a"]
    whole, mig, blank = gpus
    assert (whole.uuid, whole.index, whole.name) == ("GPU-aaaa", 0, "NVIDIA H200")
    assert (whole.utilization_percent, whole.memory_used_mib, whole.power_w) == (97, 101024, 652.311)
    assert whole.memory_total_mib == 101024 + 42131 + 616
    assert (whole.pcie_tx_bytes_per_s, whole.nvlink_tx_bytes_per_s) == (1303313, None)
    assert whole.xids == (31,)
    assert whole.age_s is None, "the page does not say how old it is"
    assert (mig.utilization_percent, mig.memory_used_mib, mig.details.mig) == (None, None, True)
    assert [(each.uuid, each.memory_used_mib) for each in mig.details.instances] == [("GPU-bbbb/gi1", 1024)]
    assert blank is not None


def test_blank_values_of_dcgm_are_unknown():
    """DCGM writes 2^47, 0x7ffffff0 and 0x7ffffffffffffff0 for what it does not know."""
    series = [each for each in parse_page(PAGE) if each.labels["gpu"] == "2"]
    assert len(series) == 3
    page = b"\n".join(line for line in PAGE.splitlines() if b'gpu="2"' in line) + b"\n"
    known = page + b'DCGM_FI_DEV_GPU_TEMP{gpu="2",UUID="GPU-cccc",Hostname="node-a"} 40\n'
    (gpu,) = join_series(parse_page(known))["node-a"]
    assert gpu.temperature_c == 40
    assert (gpu.power_w, gpu.sm_clock_mhz, gpu.utilization_percent) == (None, None, None)


def test_prometheus_tells_many_nodes_and_how_old_each_reading_is():
    """A reading may be minutes old; twice scraped is not two GPUs; NaN is unknown."""
    nodes = join_series(parse_answer(VALUES), parse_answer(AGES))
    assert {node: [gpu.uuid for gpu in gpus] for node, gpus in nodes.items()} == {
        "node-a": ["GPU-aaaa"],
        "node-b": ["GPU-bbbb"],
    }
    (first,), (second,) = nodes["node-a"], nodes["node-b"]
    assert (first.utilization_percent, first.age_s) == (97, 3.25)
    assert (second.utilization_percent, second.power_w, second.age_s) == (12, None, 240.5)


def test_one_uuid_on_two_places_of_a_node_has_no_readings():
    """Two GPUs that say they are the same cannot be told apart."""
    page = b"".join(
        b'DCGM_FI_DEV_GPU_UTIL{gpu="%d",UUID="GPU-x",Hostname="n"} 5\n' % index for index in range(2)
    )
    gpus = join_series(parse_page(page))["n"]
    assert [(gpu.state, gpu.utilization_percent) for gpu in gpus] == [(GpuState.DUPLICATE, None)] * 2


def test_an_xid_is_told_once():
    """The exporter repeats the last error for ever; it happened once."""
    made = source(lambda url: PAGE)
    assert [made.read()[0].gpus[0].xids for _ in range(3)] == [(31,), (), ()]
    made.close()


def test_a_page_that_cannot_be_had_leaves_the_gpus_without_readings():
    """An agent that is down says nothing about its GPUs, least of all that they are idle."""
    hands, pages = Hands(), [PAGE]

    def get(url):
        if not pages:
            raise FetchError("refused")
        return pages.pop()

    made = source(get, hands)
    made.read()
    hands.pass_s(7)
    (sample,) = made.read()
    assert sample.faults == ("refused",)
    assert {(gpu.state, gpu.age_s) for gpu in sample.gpus} == {(GpuState.LATE, 7)}
    assert all(getattr(gpu, name) is None for gpu in sample.gpus for name in READINGS)
    made.close()


def test_a_gpu_that_left_the_page_is_lost_and_in_the_end_forgotten():
    """A048: the exporter leaves out what it cannot see; clusters do shrink, though."""
    hands, pages = Hands(), [PAGE]
    made = source(lambda url: pages[-1], hands)
    made.read()
    pages.append(b"\n".join(line for line in PAGE.splitlines() if b"GPU-bbbb" not in line) + b"\n")
    hands.pass_s(5)
    (sample,) = made.read()
    assert {gpu.uuid: gpu.state.value for gpu in sample.gpus}["GPU-bbbb"] == "lost"
    hands.pass_s(3600)
    (sample,) = made.read()
    assert "GPU-bbbb" not in {gpu.uuid for gpu in sample.gpus}
    made.close()


def test_nothing_at_all_is_still_a_sample():
    """Whoever reads the recording must see that somebody looked."""
    made = source(lambda url: b"# nothing\n")
    (sample,) = made.read()
    assert (sample.node, sample.gpus) == ("http://node-a:9400/metrics", ())
    made.close()


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"{}",
        b"[]",
        b"[" * 100_000,
        b'{"status":"error","error":"parse error"}',
        b'{"status":"success","data":{}}',
    ],
)
def test_an_answer_that_is_none_is_a_fault(body):
    """A login page in front of Prometheus is a common one."""
    with pytest.raises(FetchError):
        list(parse_answer(body))
    made = source(lambda url: body, url="http://prometheus:9090")
    (sample,) = made.read()
    assert len(sample.faults) == 1
    made.close()


def test_a_page_that_is_none_is_a_fault():
    """What is no metric must not become one."""
    with pytest.raises(FetchError, match="not a page of metrics"):
        list(parse_page(b"DCGM_FI_DEV_GPU_UTIL{gpu= 5\n"))


@pytest.fixture
def server():
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            query = parse_qs(urlsplit(self.path).query).get("query", [""])[0]
            body = PAGE if self.path == "/metrics" else AGES if "timestamp" in query else VALUES
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{made.server_port}", asked
        made.shutdown()


def test_both_are_asked_over_http(server):
    """The URL decides: a page of metrics, or else Prometheus' interface."""
    url, asked = server
    page = DcgmSource(f"{url}/metrics", clocks_of(Hands()))
    assert [sample.node for sample in page.read()] == ["node-a"]
    prometheus = DcgmSource(f"{url}/", clocks_of(Hands()))
    assert [sample.node for sample in prometheus.read()] == ["node-a", "node-b"]
    assert [each.partition("?")[0] for each in asked] == ["/metrics", "/api/v1/query", "/api/v1/query"]
    page.close()
    prometheus.close()


def test_a_page_has_a_limit(server, monkeypatch):
    """A wrong URL may never end."""
    monkeypatch.setattr(dcgm, "_MOST_BYTES", 1000)
    with pytest.raises(FetchError, match="more than"):
        fetch(f"{server[0]}/metrics")
    with pytest.raises(FetchError, match=r"127\.0\.0\.1:1/"):
        fetch("http://127.0.0.1:1/metrics")


def test_labels_that_are_no_texts_are_read_as_if_they_were():
    """What stands between us and Prometheus may turn them into numbers."""
    labels = b'"__name__":"DCGM_FI_DEV_GPU_UTIL","UUID":"G","Hostname":7,"gpu":3'
    body = b'{"status":"success","data":{"result":[{"metric":{' + labels + b'},"value":[1,"5"]}]}}'
    nodes = join_series(parse_answer(body))
    assert [(node, gpu.index, gpu.utilization_percent) for node, (gpu,) in nodes.items()] == [("7", 3, 5.0)]
    odd = b'DCGM_FI_DEV_GPU_UTIL{gpu="\xc2\xb2",UUID="G",Hostname="n"} 5\n'
    assert join_series(parse_page(odd))["n"][0].index is None


def test_an_address_in_brackets_that_is_none_is_refused():
    """Python's own parser raises there."""
    with pytest.raises(InputError, match="not a place to get metrics from"):
        source(lambda url: b"", url="http://[")
