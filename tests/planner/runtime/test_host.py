"""Nothing is started on GPUs, ports or beside processes that are somebody else's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import plans
import psutil
import pytest

from libra_plan.errors import InputError, LaunchError
from libra_plan.planner.launchers.agents import agents_of
from libra_plan.planner.runtime.host import (
    AgentState,
    LaunchState,
    check_ports_free,
    read_state,
    refuse_survivors,
    this_node,
    write_state,
)
from libra_plan.planner.runtime.processes import MARK, marked_processes, start_time_of, still_runs


def manifest(*gpus, where=None):
    return plans.manifest_of(
        where or plans.cluster(8), plans.running("t", [plans.role("train", [[one] for one in gpus])])
    )


def test_the_only_node_is_this_host():
    """On one machine nobody should have to name it."""
    assert this_node(plans.single_node(), None).id == "n0"


def test_a_host_is_found_by_its_name():
    """The same command runs on every node."""
    name = socket.gethostname()
    where = plans.Cluster("lab", (plans.node("other", 1, "192.0.2.1"), plans.node(name, 1, None)))
    assert this_node(manifest("other:0", where=where), None).id == name


def test_a_host_that_is_no_node_is_refused():
    """Starting some other node's ranks here would be worse than starting none."""
    with pytest.raises(InputError) as caught:
        this_node(manifest("n0:0", where=plans.cluster(1, 1)), None)
    assert caught.value.allowed == "n0, n1"
    assert "--node n0" in caught.value.way_out
    with pytest.raises(InputError) as caught:
        this_node(manifest("n0:0", where=plans.cluster(1, 1)), "n7")
    assert (caught.value.got, caught.value.allowed) == ("--node n7", "n0, n1")


def test_an_unclear_host_is_named_as_others_know_it(monkeypatch):
    """Hardware and loopback addresses tell nobody which node this is, and hide the one that does."""
    found = {
        "lo": [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")],
        "eth0": [
            (socket.AF_INET, "192.0.2.7"),
            (socket.AF_INET6, "fe80::1%eth0"),
            (socket.AF_INET6, "2001:db8::7"),
            (socket.AF_PACKET, "0a:58:a9:fe:00:01"),
        ],
    }
    shaped = {name: [SimpleNamespace(family=f, address=a) for f, a in each] for name, each in found.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: shaped)
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu7.lab")
    with pytest.raises(InputError) as caught:
        this_node(manifest("n0:0", where=plans.cluster(1, 1)), None)
    assert caught.value.got == "this host is gpu7.lab, gpu7, 192.0.2.7, 2001:db8::7"
    where = plans.Cluster("lab", (plans.node("a", 1, "192.0.2.1"), plans.node("b", 1, "2001:db8::7")))
    assert this_node(manifest("a:0", where=where), None).id == "b"


def test_a_taken_port_is_refused_before_anything_starts():
    """A013: the second job died after the first had long been running."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        agents = agents_of(manifest("n0:0", where=plans.cluster(1, ports=(port, port))))
        with pytest.raises(LaunchError, match=f"port {port} of t/train is taken"):
            check_ports_free(agents)
    check_ports_free(agents)


def state(**changes):
    agent = AgentState(task="t", role="r", generation=3, pid=os.getpid(), start_time=0.0, log="x", **changes)
    return LaunchState(launch_id="no-such", manifest_digest="d", generation=3, node="n0", agents=(agent,))


def test_the_record_is_read_back(tmp_path):
    """Whoever stops or follows the agents later has only this."""
    assert read_state(tmp_path) is None
    write_state(tmp_path, state())
    assert read_state(tmp_path) == state()


def test_a_broken_record_stops_the_launch(tmp_path):
    """Without it nobody knows what still runs."""
    (tmp_path / "launch.json").write_bytes(b"\x00" * 10)
    with pytest.raises(LaunchError, match="not known"):
        read_state(tmp_path)


def test_a_pid_that_was_given_again_is_another_process():
    """Pids are reused; only pid and start time together name a process."""
    own = psutil.Process()
    started = start_time_of(own.pid)
    assert still_runs(own.pid, started)
    assert not still_runs(own.pid, started - 100.0)
    refuse_survivors(state())


def test_a_worker_whose_agent_is_gone_is_found():
    """An agent killed outright leaves its workers on the GPUs; the next launch must see them."""
    environment = {**os.environ, MARK: "launch-of-this-test", "LIBRA_PLAN_TASK": "t"}
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment) as worker:
        try:
            assert [one.pid for one in marked_processes("launch-of-this-test", "t")] == [worker.pid]
            assert marked_processes("launch-of-this-test", "other") == []
            record = LaunchState(
                launch_id="launch-of-this-test", manifest_digest="d", generation=3, node="n0"
            )
            with pytest.raises(LaunchError, match="generation 3 still run"):
                refuse_survivors(record)
        finally:
            worker.kill()
    refuse_survivors(record)
