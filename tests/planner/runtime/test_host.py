"""Nothing is started on GPUs, ports or beside processes that are somebody else's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import plans
import psutil
import pytest

from libra_plan.errors import InputError, LaunchError
from libra_plan.planner.launchers.agents import agents_of
from libra_plan.planner.runtime import gpus as launch_gpus
from libra_plan.planner.runtime.host import (
    MARK,
    AgentState,
    GpuReport,
    GpuUse,
    LaunchState,
    check_gpus_free,
    check_ports_free,
    check_visible,
    gpus_unknown,
    marked_processes,
    read_state,
    refuse_survivors,
    start_time_of,
    still_runs,
    this_node,
    write_state,
)


def manifest(*gpus, where=None):
    return plans.manifest_of(
        where or plans.cluster(8), plans.running("t", [plans.role("train", [[one] for one in gpus])])
    )


def here(*gpus):
    made = manifest(*gpus)
    return made.spec.nodes[0], agents_of(made)


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


def test_gpus_hidden_from_the_caller_are_refused_with_all_three_numbers():
    """A002: what is visible, what is planned and what exists once disagreed without a word."""
    node, agents = here("n0:1", "n0:2")
    with pytest.raises(LaunchError) as caught:
        check_visible(node, agents, {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert "CUDA_VISIBLE_DEVICES=0,1; planned: 1, 2; hidden: 2" in caught.value.got
    assert "0, 1, 2, 3, 4, 5, 6, 7" in caught.value.allowed


@pytest.mark.parametrize("text", ["1,2", "GPU-n0-1,GPU-n0-2", " 2 , GPU-n0-1", "0,1,2,3"])
def test_visible_gpus_may_be_indices_or_uuids(text):
    """A011: both forms are in use, mixed too."""
    node, agents = here("n0:1", "n0:2")
    check_visible(node, agents, {"CUDA_VISIBLE_DEVICES": text})
    check_visible(node, agents, {})


@pytest.mark.parametrize("text", ["", "GPU-n0", "-1", "GPU-other"])
def test_an_entry_that_names_no_one_gpu_shows_none(text):
    """A beginning that fits several UUIDs names none of them."""
    node, agents = here("n0:1")
    with pytest.raises(LaunchError):
        check_visible(node, agents, {"CUDA_VISIBLE_DEVICES": text})


def test_a_busy_gpu_is_refused_with_its_holder_and_the_free_count():
    """A003: the error must say who holds the GPUs and how many are free."""
    node, agents = here("n0:1", "n0:2")

    def check(_, gpus):
        return tuple(
            GpuReport(f"n0:{gpu.index}", GpuUse.BUSY, "pid 7, job X")
            if gpu.index == 2
            else GpuReport(f"n0:{gpu.index}", GpuUse.FREE)
            for gpu in gpus
        )

    with pytest.raises(LaunchError) as caught:
        check_gpus_free(node, agents, check, allow_unknown=True)
    assert caught.value.got == "GPU n0:2 busy (pid 7, job X)"
    assert caught.value.allowed == "2 free GPUs; 1 are"


def test_unknown_is_not_free():
    """A044: an empty process list in a container is no proof of a free GPU."""
    node, agents = here("n0:1")
    with pytest.raises(LaunchError, match="unknown"):
        check_gpus_free(node, agents, gpus_unknown, allow_unknown=False)
    (report,) = check_gpus_free(node, agents, gpus_unknown, allow_unknown=True)
    assert report.state is GpuUse.UNKNOWN


def test_what_is_true_of_all_gpus_is_told_once():
    """Without NVML every GPU is unknown for one reason, and one flag is the way out."""
    node, agents = here("n0:1", "n0:2", "n0:5")
    with pytest.raises(LaunchError) as caught:
        check_gpus_free(node, agents, gpus_unknown, allow_unknown=False)
    assert caught.value.got == "GPUs n0:1, n0:2, n0:5 unknown (nothing reads the GPUs here)"
    assert "--allow-unknown-gpus" in caught.value.way_out


def test_nvml_that_does_not_answer_is_no_matter_of_other_verbs(monkeypatch):
    """`launch` has neither --gpus nor --cluster, so its messages must not advise them."""

    def no_cards():
        raise InputError("the GPUs cannot be read", got="NVML: Driver Not Loaded", way_out="--gpus N")

    monkeypatch.setattr(launch_gpus, "read_cards", no_cards)
    node, agents = here("n0:1", "n0:2")
    with pytest.raises(LaunchError) as caught:
        check_gpus_free(node, agents, launch_gpus.gpus_free, allow_unknown=False)
    assert caught.value.message.count("Driver Not Loaded") == 1
    assert "--gpus N" not in caught.value.message


def test_a_check_that_forgets_a_gpu_leaves_it_unknown():
    """No answer is no permission."""
    node, agents = here("n0:1", "n0:2")
    with pytest.raises(LaunchError, match="GPU n0:2 unknown"):
        check_gpus_free(node, agents, lambda *_: (GpuReport("n0:1", GpuUse.FREE),), allow_unknown=False)


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


def test_a_clock_that_is_set_makes_no_other_process_of_one(monkeypatch):
    """A078: a node that got its time late took every role for gone, and stopped it without a checkpoint."""
    started = start_time_of(os.getpid())
    real = psutil.boot_time()
    monkeypatch.setattr("psutil.boot_time", lambda: real + 3600.0)
    monkeypatch.setattr("psutil._pslinux.boot_time", lambda: real + 3600.0)
    monkeypatch.setattr("psutil.Process.create_time", lambda _: real + 3600.0)
    assert still_runs(os.getpid(), started)
    assert 0.0 < started <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_process_that_has_ended_runs_no_more_and_had_a_start_time():
    """A role may end before it is on record; until its parent asks for its status it is there."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        started = start_time_of(process.pid)
        assert started > 0.0
        assert not still_runs(process.pid, started)
    assert start_time_of(2**22 + 1) is None
