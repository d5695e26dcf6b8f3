"""What torchrun is given for each role and node: words, environment, and why there is none."""

from __future__ import annotations

import plans
import pytest

from libra_plan.planner.launchers.agents import agents_of
from libra_plan.profiles.schema import LifecycleSpec


def train(*replicas, tp=1, where=None, **more):
    where = where or plans.cluster(8)
    return plans.manifest_of(where, plans.running("t", [plans.role("train", replicas, tp=tp)]), **more)


def parsed(agent):
    """Read an agent's arguments with torchrun's own parser; abbreviated flags would be read too."""
    run = pytest.importorskip("torch.distributed.run", reason="PyTorch is not installed")
    known = {flag for action in run.get_args_parser()._actions for flag in action.option_strings}
    words = agent.argv[1 : agent.argv.index("--")]
    assert {word for word in words if word.startswith("--")} <= known
    return run.parse_args(list(agent.argv[1:]))


@pytest.mark.torch
@pytest.mark.parametrize(
    ("command", "program", "arguments"),
    [
        (("train.py", "--lr", "1"), ("python", "-u", "train.py"), ["--lr", "1"]),
        (("train.py", "--", "-x"), ("python", "-u", "train.py"), ["--", "-x"]),
        (("python", "train.py", "-x"), ("python", "-u", "train.py"), ["-x"]),
        (("python3", "-m", "pkg.run", "a"), ("python", "-u", "-m", "pkg.run"), ["a"]),
        (("-m", "pkg.run"), ("python", "-u", "-m", "pkg.run"), []),
        (("python", "-c", "pass"), ("python",), ["-c", "pass"]),
        (("./serve", "--nnodes", "7"), ("./serve",), ["--nnodes", "7"]),
    ],
)
def test_scripts_modules_and_programs(command, program, arguments, monkeypatch):
    """Torchrun adds its own Python for scripts and modules, and must be told about programs."""
    run = pytest.importorskip("torch.distributed.run", reason="PyTorch is not installed")
    monkeypatch.setenv("PYTHON_EXEC", "python")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (agent,) = agents_of(train(["n0:0"], command=command))
    _, entry, rest = run.config_from_args(parsed(agent))
    assert [entry, *rest] == [*program, *arguments]


def test_integer_ids_go_out_and_uuids_beside_them():
    """A011: UUIDs in CUDA_VISIBLE_DEVICES break frameworks that read them as numbers."""
    (agent,) = agents_of(train(["n0:5"], ["n0:7"]))
    assert agent.environment["CUDA_VISIBLE_DEVICES"] == "5,7"
    assert agent.environment["LIBRA_PLAN_GPU_UUIDS"] == "GPU-n0-5,GPU-n0-7"


def test_the_order_of_indices_is_that_of_nvml():
    """A012: CUDA counts fastest first, NVML by PCI bus; the wrong card's memory was read."""
    assert all(
        agent.environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        for agent in agents_of(plans.two_nodes())
        if agent.gpus
    )


def test_every_job_of_a_host_has_a_port_of_its_own():
    """A013: two jobs of one host both took port 29500."""
    ports = [agent.argv[agent.argv.index("--master-port") + 1] for agent in agents_of(plans.colocated())]
    assert len(set(ports)) == len(ports) == 3


@pytest.mark.torch
def test_an_ipv6_address_is_put_in_brackets(monkeypatch):
    """Its colons would be read as the port's."""
    run = pytest.importorskip("torch.distributed.run", reason="PyTorch is not installed")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    where = plans.Cluster("lab", (plans.node("n0", 1, "fd00::1"), plans.node("n1", 1, None)))
    agents = agents_of(train(["n0:0"], ["n1:0"], where=where))
    assert run.config_from_args(parsed(agents[1]))[0].rdzv_endpoint == "[fd00::1]:24000"


def test_a_stop_signal_torchrun_does_not_handle_is_told_to_it():
    """An unhandled SIGUSR1 kills the agent and leaves its workers on the GPUs."""
    usual = agents_of(train(["n0:0"]))[0].argv
    special = agents_of(train(["n0:0"], lifecycle=LifecycleSpec(stop_signal="SIGUSR1")))[0].argv
    assert "--signals-to-handle" not in usual
    assert "SIGUSR1" in special[special.index("--signals-to-handle") + 1]
