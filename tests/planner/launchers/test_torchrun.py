"""What is emitted for torchrun is what torchrun reads, on every node, whatever the names.

The golden files in tests/golden/torchrun are remade by running this file:
`python tests/planner/launchers/test_torchrun.py` (with tests/support on PYTHONPATH).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import plans
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.agents import AgentOptions, agents_of
from libra_plan.planner.launchers.torchrun import EMITTER
from libra_plan.planner.plan import CpuShare
from libra_plan.profiles.schema import LifecycleSpec

GOLDEN = Path(__file__).parents[2] / "golden" / "torchrun"


def emitted(case):
    """Emit a case; the digest, which changes with the planner's version, is left out."""
    manifest = plans.CASES[case]()
    return {
        path: text.replace(manifest.metadata.digest, "DIGEST")
        for path, text in EMITTER.emit(manifest).items()
    }


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


@pytest.mark.parametrize("case", plans.CASES)
def test_golden_files(case):
    """A change of what launchers get must be seen in review."""
    folder = GOLDEN / case
    kept = {
        str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()
    }
    assert emitted(case) == kept


@pytest.mark.torch
@pytest.mark.parametrize("case", plans.CASES)
def test_every_argument_list_is_read_by_torchrun(case, monkeypatch):
    """The parser of the installed torchrun is the judge of what it takes."""
    run = pytest.importorskip("torch.distributed.run", reason="PyTorch is not installed")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    manifest = plans.CASES[case]()
    roles = {f"{task.id}/{role.id}": role for task in manifest.spec.tasks for role in task.roles}
    ranks = dict.fromkeys(roles, 0)
    for agent in agents_of(manifest):
        name = f"{agent.task}/{agent.role}"
        if not agent.gpus:
            continue
        role = roles[name]
        arguments = parsed(agent)
        config, _, _ = run.config_from_args(arguments)
        assert (config.min_nodes, config.max_nodes) == (len(role.members), len(role.members))
        assert config.nproc_per_node == len(agent.gpus)
        assert config.rdzv_backend == "static"
        assert config.rdzv_configs == {"timeout": "300", "rank": ranks[name]}
        assert config.run_id == role.rendezvous.id
        assert config.rdzv_endpoint.endswith(f":{role.rendezvous.port}")
        assert (config.role, config.max_restarts, arguments.standalone) == (agent.role, 0, False)
        ranks[name] += 1
    assert all(count == len(roles[name].members) for name, count in ranks.items())


def test_unequal_nodes_make_one_world():
    """A014: nodes of 2, 4, 8 and 8 GPUs are 22 ranks, not nodes × devices."""
    where = plans.cluster(2, 4, 8, 8)
    manifest = train(*[[str(gpu)] for gpu in where.gpus], where=where)
    agents = agents_of(manifest)
    assert [len(agent.gpus) for agent in agents] == [2, 4, 8, 8]
    assert [agent.first_rank for agent in agents] == [0, 2, 6, 14]
    assert {agent.world_size for agent in agents} == {22}
    script = EMITTER.emit(manifest)["t/train/n0.sh"]
    assert "unequal" in script
    assert "unset TORCH_ELASTIC_WORKER_IDENTICAL" in script


@pytest.mark.parametrize("case", plans.CASES)
def test_emitted_gpus_add_up_to_the_manifest(case):
    """A015, A086: read back from the files, every size is at least 1 and every GPU exists."""
    manifest = plans.CASES[case]()
    there = {f"{node.id}:{gpu.index}" for node in manifest.spec.nodes for gpu in node.gpus}
    planned = [
        gpu for task in manifest.spec.tasks for role in task.roles for one in role.replicas for gpu in one
    ]
    found = []
    for path, text in EMITTER.emit(manifest).items():
        if not path.endswith(".sh") or "--nproc-per-node" not in text:
            continue
        words = shlex.split(text.splitlines()[-1])
        gpus = next(
            line.partition("=")[2] for line in text.splitlines() if "CUDA_VISIBLE_DEVICES" in line
        ).split(",")
        assert int(words[words.index("--nproc-per-node") + 1]) == len(gpus) >= 1
        found += [f"{Path(path).stem}:{gpu}" for gpu in gpus]
    assert sorted(found) == sorted(planned)
    assert set(found) <= there


def test_the_readme_says_which_role_runs_where():
    """A088: from a config one could not tell which model runs on which GPU."""
    readme = EMITTER.emit(plans.single_node())["README.md"]
    assert "| grpo | rollout | n0 | 2 3 4 5 6 7 | 0-5 | tp2 dp3 | 24001 |  |" in readme
    assert "reward-model waits (gpus-short)" in readme


def test_roles_that_share_gpus_each_have_a_script_that_says_so():
    """The launcher cannot alternate them; whoever runs the scripts must know that."""
    files = EMITTER.emit(plans.colocated())
    assert (
        "It shares GPUs with actor, reference: the framework must let them work in turn"
        in files["ppo/rollout/n0.sh"]
    )
    assert {path for path in files if path.endswith(".sh")} == {
        f"ppo/{role}/n0.sh" for role in ("actor", "rollout", "reference")
    }


def test_a_role_without_a_command_is_refused_by_name():
    """A script that starts nothing would look like success."""
    with pytest.raises(ManifestError, match=r"torchrun cannot express.*t/train: it has no command"):
        EMITTER.emit(train(["n0:0"], command=()))


def test_an_environment_without_a_command_has_no_script_and_a_note():
    """Environments often live inside the rollout's processes; that is no fault."""
    task = plans.running("t", [plans.role("rollout", [["n0:0"]])], cpu=[CpuShare("env", "n0", 2)])
    problem, plan = plans.problem_of(plans.cluster(1), [task]), plans.plan_of([task])
    workload = plans.workload_of([plans.running("t", [plans.role("rollout", [["n0:0"]])])])
    files = EMITTER.emit(plans.build_manifest(problem, plan, name="lab", workload=workload))
    assert not any("/env/" in path for path in files)
    assert "t/env: no command" in files["README.md"]


def test_meeting_across_nodes_needs_an_address():
    """A host name is not invented from a node id."""
    manifest = train(
        [*plans.span("n0", 0, 2), *plans.span("n1", 0, 2)], tp=4, where=plans.cluster(2, 2, address=False)
    )
    with pytest.raises(ManifestError, match="node n0 has no address"):
        EMITTER.emit(manifest)


def test_the_grace_goes_by_environment_and_by_flag_only_where_it_exists():
    """Version 2.11 has no --shutdown-timeout and would refuse to start; it ignores the variable."""
    manifest = train(["n0:0"], lifecycle=LifecycleSpec(grace_s=45.5))
    (plain,) = agents_of(manifest)
    (newer,) = agents_of(manifest, AgentOptions(shutdown_timeout=True))
    assert plain.environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "46"
    assert "--shutdown-timeout" not in plain.argv
    assert newer.argv[newer.argv.index("--shutdown-timeout") + 1] == "46"
    assert (
        "--shutdown-timeout 46"
        in replace(EMITTER, options=AgentOptions(shutdown_timeout=True)).emit(manifest)["t/train/n0.sh"]
    )


HOSTILE = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=20
) | st.sampled_from(
    [
        "$(touch gone)",
        "`touch gone`",
        "'; touch gone; '",
        "a\ntouch gone",
        "--nnodes",
        "*",
        "~",
        "a b",
        '"',
        "\\",
    ]
)


@settings(max_examples=25, deadline=None)
@given(words=st.lists(HOSTILE, max_size=4), folder=HOSTILE, uuid=HOSTILE)
def test_hostile_values_stay_values(words, folder, uuid, tmp_path_factory):
    """Run by a real shell, the script must hand on every word unchanged and run nothing else."""
    place = tmp_path_factory.mktemp("run")
    where = plans.cluster(1)
    card = where.nodes[0].gpus[0]
    where = plans.Cluster(
        "lab",
        (plans.Node("n0", (plans.Gpu(card.id, card.gpu_class, card.memory_mib, uuid),), None, 64.0, 1e6),),
    )
    lifecycle = LifecycleSpec(checkpoint_dir=folder)
    manifest = train(["n0:0"], where=where, command=["train.py", *words], lifecycle=lifecycle)
    shell = shutil.which("sh")
    (place / "torchrun").write_text('#!/bin/sh\nenv -0 > env.out\nprintf "%s\\0" "$@" > argv.out\n')
    (place / "torchrun").chmod(0o755)
    (place / "n0.sh").write_bytes(EMITTER.emit(manifest)["t/train/n0.sh"].encode())
    subprocess.run([shell, "n0.sh"], cwd=place, check=True, env={"PATH": f"{place}:{os.environ['PATH']}"})
    (agent,) = agents_of(manifest)
    assert (place / "argv.out").read_bytes() == b"".join(word.encode() + b"\0" for word in agent.argv[1:])
    environment = (place / "env.out").read_bytes().split(b"\0")
    assert b"LIBRA_PLAN_CHECKPOINT_DIR=" + folder.encode() in environment
    assert b"LIBRA_PLAN_GPU_UUIDS=" + uuid.encode() in environment
    assert sorted(path.name for path in place.iterdir()) == ["argv.out", "env.out", "n0.sh", "torchrun"]


def test_the_environment_file_can_be_sourced(tmp_path):
    """`set -a; . FILE` must give what the script exports, for those who start agents otherwise."""
    manifest = train(["n0:0"], lifecycle=LifecycleSpec(checkpoint_dir="it's here; $(id)"))
    (tmp_path / "n0.env").write_text(EMITTER.emit(manifest)["t/train/n0.env"], encoding="utf-8")
    output = subprocess.run(
        [shutil.which("sh"), "-c", "set -a; . ./n0.env; env"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        env={},
    ).stdout
    (agent,) = agents_of(manifest)
    assert {f"{key}={value}" for key, value in agent.environment.items()} <= set(output.splitlines())


def remake():
    for case in plans.CASES:
        shutil.rmtree(GOLDEN / case, ignore_errors=True)
        for path, text in emitted(case).items():
            target = GOLDEN / case / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    remake()
