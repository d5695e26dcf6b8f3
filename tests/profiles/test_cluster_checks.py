from __future__ import annotations

from pathlib import Path

import pytest

from libra_plan.errors import ClusterError
from libra_plan.profiles.catalog import load_cluster

EXAMPLES = Path(__file__).parents[2] / "examples"

CASES = {
    "endless node": ("\n - {id: a, gpu_class: h, gpu_count: 1000000000}", r"gpu_count: .*≤ 1024"),
    "more cores than any machine": (
        "\n - {id: a, gpu_class: h, gpu_count: 1, cpu_cores: 1e300}",
        r"cpu_cores: .*≤ 1000000",
    ),
    "more memory than any machine": (
        "\n - {id: a, gpu_class: h, gpu_count: 1, host_memory_mib: 1e300}",
        r"host_memory_mib: .*≤ 1",
    ),
    "a command for an address": (
        '\n - {id: a, gpu_class: h, gpu_count: 1, address: "a; rm -rf /"}',
        r"nodes\[0\]\.address: ",
    ),
    "two lines for an address": (
        '\n - {id: a, gpu_class: h, gpu_count: 1, address: "a\\nb"}',
        r"nodes\[0\]\.address: ",
    ),
    "no nodes": ("[]", "no nodes"),
    "same node twice": (
        "\n - {id: a, gpu_class: h, gpu_count: 1}\n - {id: a, gpu_class: h, gpu_count: 1}",
        r"c\.yaml:4: nodes\[1\]\.id: two nodes have the id `a`; got the other on line 3",
    ),
    "neither": ("\n - {id: a, gpu_class: h}", r"nodes\[0\]: .*either `gpu_count` or `gpus`; got neither"),
    "both": ("\n - {id: a, gpu_class: h, gpu_count: 1, gpus: [{index: 0}]}", "got both"),
    "ports": (
        "\n - {id: a, gpu_class: h, gpu_count: 1, port_first: 3000, port_last: 2000}",
        r"nodes\[0\]\.port_first: `port_first` must be below `port_last`; got 3000 and 2000",
    ),
    "default port": (
        "\n - {id: a, gpu_class: h, gpu_count: 1, port_last: 2000}",
        r"nodes\[0\]\.port_last: `port_first` must be below",
    ),
    "index twice": (
        "\n - {id: a, gpu_class: h, gpus: [{index: 0}, {index: 0}]}",
        r"nodes\[0\]\.gpus\[1\]\.index: two GPUs of node `a` have the index 0",
    ),
    "gigabytes": (
        "\n - {id: a, gpu_class: h200_sxm, gpu_count: 8, gpu_memory_mib: 141}",
        r"c\.yaml:3: nodes\[0\]\.gpu_memory_mib: .*MiB, not GB\?; got 141 MiB; allowed: 71578 to 157471 MiB",
    ),
    "megabytes of one card": (
        "\n - {id: a, gpu_class: h100_sxm, gpus: [{index: 0}, {index: 1, memory_mib: 100000}]}",
        r"nodes\[0\]\.gpus\[1\]\.memory_mib: .*got 100000 MiB",
    ),
    "uuid twice": (
        "\n - {id: a, gpu_class: h, gpus: [{index: 0, uuid: GPU-1}]}"
        "\n - {id: b, gpu_class: h, gpus: [{index: 0, uuid: GPU-1}]}",
        r"c\.yaml:4: nodes\[1\]\.gpus\[0\]\.uuid: two GPUs have the UUID GPU-1",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_cluster_that_contradicts_itself_is_refused(tmp_path: Path, case: str) -> None:
    """A GPU counted twice would be given to two roles."""
    nodes, words = CASES[case]
    path = tmp_path / "c.yaml"
    path.write_text(f"schema_version: 1\nnodes: {nodes}\n", encoding="utf-8")
    with pytest.raises(ClusterError, match=words):
        load_cluster(path)


@pytest.mark.skipif(not EXAMPLES.is_dir(), reason="run against an installed package")
def test_the_example_cluster_loads() -> None:
    """Users copy it, so it must be right."""
    cluster, digest = load_cluster(EXAMPLES / "cluster.yaml")
    assert [node.id for node in cluster.nodes] == ["node-a", "node-b"]
    assert len(digest) == 64


def test_a_class_we_do_not_know_is_not_judged(tmp_path: Path) -> None:
    """A small card is not a mistake."""
    path = tmp_path / "c.yaml"
    nodes = "[{id: a, gpu_class: t4, gpu_count: 1, gpu_memory_mib: 15360}]"
    path.write_text(f"schema_version: 1\nnodes: {nodes}\n", encoding="utf-8")
    assert load_cluster(path)[0].nodes[0].gpu_memory_mib == 15360
