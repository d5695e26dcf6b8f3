"""Ranks under torchrun are those of the manifest."""

from __future__ import annotations

import json
import sys
import threading

import plans
import pytest
from live import free_ports

from libra_plan.planner.launchers.agents import AgentOptions
from libra_plan.planner.runtime.launch import launch

TORCHRUN = AgentOptions(program=(sys.executable, "-m", "torch.distributed.run"))


RANK = """
import json, os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
keys = ("LIBRA_PLAN_ROLE", "ROLE_NAME", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "LOCAL_RANK", "GROUP_RANK",
        "LIBRA_PLAN_MANIFEST_DIGEST", "TORCHELASTIC_RUN_ID")
facts = {key: os.environ.get(key) for key in keys}
facts |= {"rank": dist.get_rank(), "world": dist.get_world_size(), "sum": total.item()}
name = f"{facts['LIBRA_PLAN_ROLE']}-{dist.get_rank()}.json"
with open(os.path.join(sys.argv[1], name), "w") as file:
    json.dump(facts, file)
dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.slow
def test_real_ranks_are_those_of_the_manifest(tmp_path, monkeypatch):
    """Under torchrun with gloo, two roles at once and one of them on two nodes: each rank is as planned."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    script, found = tmp_path / "rank.py", tmp_path / "found"
    script.write_text(RANK, encoding="utf-8")
    found.mkdir()
    ports = free_ports(4)
    where = plans.Cluster("lab", tuple(plans.node(name, 8, "127.0.0.1", ports) for name in ("n0", "n1")))
    pools = (
        [plans.role("actor", [["n0:6"], ["n1:0"], ["n1:5"]])],
        [plans.role("rollout", [["n0:0", "n0:3"]], tp=2)],
    )
    manifest = plans.manifest_of(where, plans.running("grpo", *pools), command=(str(script), str(found)))
    reports = {}

    def on(node):
        folder = tmp_path / node
        reports[node] = launch(
            manifest, folder=folder, dry_run=False, node=node, allow_unknown_gpus=True, options=TORCHRUN
        )

    threads = [threading.Thread(target=on, args=(node,)) for node in ("n1", "n0")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    logs = "\n".join(path.read_text() for path in tmp_path.rglob("*.log"))
    assert all(report.succeeded for report in reports.values()), logs
    facts = {path.stem: json.loads(path.read_text()) for path in found.iterdir()}
    assert facts == {
        key: value for role in manifest.spec.tasks[0].roles for key, value in expected_of(manifest, role)
    }


def expected_of(manifest, role):
    """Say from the manifest alone what every rank of a role must see."""
    world = sum(len(member.gpus) for member in role.members)
    rank = 0
    for node_rank, member in enumerate(role.members):
        for local_rank in range(len(member.gpus)):
            yield (
                f"{role.id}-{rank}",
                {
                    "LIBRA_PLAN_ROLE": role.id,
                    "ROLE_NAME": role.id,
                    "MASTER_PORT": str(role.rendezvous.port),
                    "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in member.gpus),
                    "LOCAL_RANK": str(local_rank),
                    "GROUP_RANK": str(node_rank),
                    "LIBRA_PLAN_MANIFEST_DIGEST": manifest.metadata.digest,
                    "TORCHELASTIC_RUN_ID": f"grpo-{role.id}-g1",
                    "rank": rank,
                    "world": world,
                    "sum": sum(range(world)),
                },
            )
            rank += 1
