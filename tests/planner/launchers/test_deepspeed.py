"""DeepSpeed's hostfile and --include say the plan's GPUs in rank order, or the plan is refused."""

from __future__ import annotations

import re
import shlex

import launch_cases
import plans
import pytest
import shells
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.base import find_emitter
from libra_plan.profiles.schema import LifecycleSpec

EMITTER = find_emitter("deepspeed")


def included(script):
    """Read --include as DeepSpeed does: hosts, and their GPUs sorted."""
    text = next(word for word in shlex.split(script.splitlines()[-1]) if word.startswith("--include="))
    pairs = (part.split(":") for part in text.removeprefix("--include=").split("@"))
    return [(host, sorted(int(gpu) for gpu in gpus.split(","))) for host, gpus in pairs]


def test_every_role_gets_its_gpus():
    """The launcher's own reading of --include must give the plan's ranks."""
    for make in launch_cases.TEN.values():
        manifest = make()
        files = EMITTER.emit(manifest)
        hosts = {node.id: node.address for node in manifest.spec.nodes}
        for task in manifest.spec.tasks:
            for role in task.roles:
                if not role.members:
                    continue
                several = len(role.members) > 1
                assert included(files[f"{task.id}/{role.id}/run.sh"]) == [
                    (hosts[member.node] if several else "localhost", list(member.gpus))
                    for member in role.members
                ]


def test_hostfiles_are_read_with_deepspeeds_own_pattern():
    """A line that does not match ends the launch."""
    text = EMITTER.emit(launch_cases.unequal())["unequal/actor/hostfile"]
    read = [re.fullmatch(r"(\S+)\s+slots=(\d+)", line).groups() for line in text.splitlines()]
    assert read == [("10.0.0.1", "8"), ("10.0.0.2", "4")]


def test_ranks_in_another_order_are_refused():
    """DeepSpeed sorts the GPUs of a host, so two interleaved replicas would change places."""
    task = plans.running("t", [plans.role("a", [["n0:0", "n0:2"], ["n0:1", "n0:3"]], tp=2)])
    with pytest.raises(ManifestError, match="DeepSpeed sorts GPUs"):
        EMITTER.emit(plans.manifest_of(plans.cluster(4), task))


def test_words_that_a_remote_shell_would_read_are_refused():
    """DeepSpeed puts them into the text of a command for other nodes, in quotes of its own at most."""
    task = plans.running("t", [plans.role("a", [["n0:0"], ["n1:0"]])])
    with pytest.raises(ManifestError, match="does not quote words"):
        EMITTER.emit(plans.manifest_of(plans.cluster(1, 1), task, command=("train.py", "it's; touch gone")))


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)


@settings(max_examples=20, deadline=None)
@given(words=st.lists(WORDS, max_size=3), folder=WORDS)
def test_on_one_node_hostile_words_stay_words(words, folder, tmp_path_factory):
    """There the launcher starts processes without a shell between."""
    place = tmp_path_factory.mktemp("deepspeed")
    manifest = plans.manifest_of(
        plans.cluster(4),
        plans.running("t", [plans.role("a", [["n0:1"], ["n0:3"]])]),
        command=("train.py", *words),
        lifecycle=LifecycleSpec(checkpoint_dir=folder),
    )
    shells.write(place, EMITTER.emit(manifest))
    argv, environment = shells.recorded(place, "t/a/run.sh", ("deepspeed",), CUDA_VISIBLE_DEVICES="9")
    assert "--include=localhost:1,3" in argv
    assert argv[argv.index("train.py") + 1 :] == words
    assert environment["LIBRA_PLAN_CHECKPOINT_DIR"] == folder
    assert "CUDA_VISIBLE_DEVICES" not in environment
