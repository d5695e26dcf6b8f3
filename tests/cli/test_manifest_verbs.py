"""`emit`: options reach the launcher, the list says all there is, and old files make way for new ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from cli_run import train_task, write_workload

from libra_plan.planner.launchers.document import manifest_to_json, seal
from libra_plan.planner.launchers.manifest import Manifest


@pytest.fixture
def run(call, folder):
    """Plan two tasks on one node and give the folder of the manifest."""
    assert call("solve", folder, "--gpus", 4, "--out", "run").code == 0
    return Path("run")


def test_options_reach_the_launcher(call, run):
    """The documented `--option` must change what is written."""
    words = ("emit", "torchrun", run, "--format", "json")
    assert "--shutdown-timeout" not in call(*words).out
    ran = call(*words, "--option", "shutdown_timeout=true", "--option", "rendezvous_timeout_s=77")
    assert ran.code == 0, ran.err
    assert "--shutdown-timeout" in ran.out
    assert "timeout=77" in ran.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["shutdown_timeout"], "allowed: --option KEY=VALUE"),
        (["shutdown=true"], "did you mean `shutdown_timeout`?"),
        (["shutdown=true"], "shutdown_timeout (now false)"),
        (["rendezvous_timeout_s=soon"], "got soon; allowed: a whole number (now 300)"),
        (["shutdown_timeout=maybe"], "got maybe; allowed: true or false (now false)"),
        (["shutdown_timeout=true", "shutdown_timeout=false"], "given twice"),
    ],
)
def test_a_wrong_option_is_one_line(call, run, options, said):
    """Who misspells an option must not get files without it."""
    ran = call("emit", "torchrun", run, *(word for text in options for word in ("--option", text)))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert said in ran.err


def test_an_option_may_be_what_is_missing(call, run):
    """A refusal that names an option must be answered by giving it."""
    words = ("emit", "kubernetes", run, "--option", "dra=true")
    assert "--option image=" in call(*words).err
    assert "no image is given" not in call(*words, "--option", "image=registry.example/train:1").err


def test_the_list_has_versions_abilities_and_options(call):
    """The list is where people look before they read the documentation."""
    listed = json.loads(call("emit", "--list", "--format", "json").out)
    assert "2.13.0" in listed["torchrun"]["versions"]
    assert "exact GPUs" in listed["torchrun"]["abilities"]
    assert listed["torchrun"]["options"]["shutdown_timeout"] is False
    assert listed["kubernetes"]["options"]["namespace"] == "default"
    text = call("emit", "slurm", "--list").out
    assert "checked against: 22.05.8" in text
    assert "partition=" in text
    assert "torchrun" not in text


def test_every_documented_option_exists(call):
    """The names in docs/launchers.md are what people copy."""
    listed = json.loads(call("emit", "--list", "--format", "json").out)
    known = {key for launcher in listed.values() for key in launcher["options"]}
    text = (Path(__file__).parents[2] / "docs" / "launchers.md").read_text(encoding="utf-8")
    section = text.partition("## Options")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_]+)`", section))
    assert {"dra", "port_base", "checkpoint_engine"} <= named
    assert named <= known


def test_a_new_generation_takes_the_place_of_the_old_scripts(call, run, folder):
    """A script of a task that has left must not lie ready to be started."""
    call("emit", "torchrun", run, "--out", "scripts")
    Path("scripts", "notes.txt").write_text("mine\n")
    assert Path("scripts/b").is_dir()
    write_workload(folder, [train_task("a")])
    assert call("solve", folder, "--gpus", 4, "--out", run).code == 0
    ran = call("emit", "torchrun", run, "--out", "scripts")
    assert ran.code == 0, ran.err
    assert "of an earlier emit: b/reward-model/node0" in ran.err
    assert not Path("scripts/b").exists()
    assert Path("scripts", "notes.txt").exists()


def test_an_edited_script_is_not_lost(call, run):
    """People put a line into a script and emit again."""
    call("emit", "torchrun", run, "--out", "scripts")
    script = Path("scripts/a/reward-model/node0.sh")
    script.write_text(script.read_text() + "# mine\n")
    ran = call("emit", "torchrun", run, "--out", "scripts")
    assert ran.code == 2
    assert "a/reward-model/node0.sh" in ran.err
    assert script.read_text().endswith("# mine\n")


def test_a_cause_is_told_once_and_alone_on_its_line(call, tmp_path):
    """Roles without a command and nodes without an address are two causes, however many roles there are."""
    tasks = [train_task("wide"), train_task("two"), train_task("three")]
    for task in tasks:
        del task["roles"][0]["command"]
    tasks[0]["min_gpus"] = 3
    work = write_workload(tmp_path / "w", tasks)
    words = ("solve", work, "--gpus", 6, "--gpus-per-node", 2, "--out", "wide")
    assert call(*words).code == 0
    ran = call("emit", "torchrun", "wide")
    assert ran.code == 2
    lines = ran.err.splitlines()
    (commands,) = [line for line in lines if "it has no command" in line]
    assert all(f"{name}/reward-model" in commands for name in ("wide", "two", "three"))
    assert "state `command`" in lines[0]
    assert "--cluster FILE" in lines[0]
    assert any("has no address" in line for line in lines[1:])


def test_an_unsound_manifest_is_not_emitted(call, run):
    """A GPU with two ranks must not reach a launcher, however right the digest is (A015)."""
    path = run / "manifest.json"
    manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    task, *others = manifest.spec.tasks
    role, *more = task.roles
    first = role.replicas[0]
    broken = msgspec.structs.replace(role, replicas=(first, first, *role.replicas[2:]))
    task = msgspec.structs.replace(task, roles=(broken, *more))
    spec = msgspec.structs.replace(manifest.spec, tasks=(task, *others))
    path.write_text(manifest_to_json(seal(msgspec.structs.replace(manifest, spec=spec))))
    ran = call("emit", "torchrun", run, "--out", "scripts")
    assert ran.code == 2
    assert "breaks the rules of manifests" in ran.err
    assert not Path("scripts").exists()
