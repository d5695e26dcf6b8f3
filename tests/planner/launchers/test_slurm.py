"""Slurm jobs take whole nodes, know only options that sbatch knows, and pass signals on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import launch_cases
import plans
import pytest
import shells
from hypothesis import given, settings
from hypothesis import strategies as st
from live import PATIENCE_S, wait_for

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.agents import agents_of
from libra_plan.planner.launchers.base import configured, find_emitter
from libra_plan.profiles.schema import LifecycleSpec

OPTIONS = Path(__file__).parents[2] / "data" / "launchers" / "sbatch_22.05.8.txt"
CONF = """ClusterName=t
SlurmctldHost=localhost
AuthType=auth/none
CredType=cred/none
GresTypes=gpu
NodeName=n0
PartitionName=p Nodes=n0
MessageTimeout=1
"""


def emit(manifest, **options):
    return configured(find_emitter("slurm"), options).emit(manifest)


def jobs():
    for case, make in launch_cases.TEN.items():
        try:
            files = emit(make(), partition="gpu", account="team", qos="high", time="1-00:00:00")
        except ManifestError:
            continue  # refusals are in the golden table
        for path, text in files.items():
            if path.endswith("job.sbatch"):
                yield case, text


def test_every_directive_is_an_option_of_sbatch():
    """An unknown option is refused only when the job is submitted."""
    known = set(OPTIONS.read_text().split())
    seen = 0
    for _, text in jobs():
        for line in text.splitlines():
            if line.startswith("#SBATCH --"):
                assert line.removeprefix("#SBATCH ").partition("=")[0] in known
                seen += 1
    assert seen > 50


def test_sbatch_itself_takes_every_directive(tmp_path):
    """Without a controller sbatch still reads its options, and ends with 255 at one it does not know."""
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        pytest.skip("sbatch is not installed")
    (tmp_path / "slurm.conf").write_text(CONF)
    environment = {**os.environ, "SLURM_CONF": str(tmp_path / "slurm.conf")}
    for number, (_, text) in enumerate(jobs()):
        script = tmp_path / f"{number}.sbatch"
        script.write_text(text)
        done = subprocess.run(
            [sbatch, "--test-only", str(script)], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode != 255, done.stderr
        assert "nvalid" not in done.stderr
        assert "unrecognized" not in done.stderr


def test_nodes_with_other_roles_are_components():
    """One job has one number of GPUs per node; a heterogeneous one has several."""
    text = emit(launch_cases.whole_nodes())["wide/job.sbatch"]
    first, second = text.split("#SBATCH hetjob\n")
    assert "--nodelist=n0,n1\n" in first
    assert "--nodelist=n2\n" in second
    assert "srun --het-group=1 --nodes=1 --nodelist=n2" in second
    assert "hetjob" not in emit(launch_cases.ahead())["ahead/job.sbatch"]


def test_a_node_of_two_tasks_is_refused():
    """Slurm renumbers the GPUs of a job that has only some of a node's."""
    with pytest.raises(ManifestError, match="first and second share node n0"):
        emit(launch_cases.gaps())
    with pytest.raises(ManifestError, match="first and second share node n0"):
        emit(launch_cases.gaps(), tasks="first")


def test_the_warning_comes_before_the_grace_is_over():
    """Slurm kills at the end of the time limit, whether the ranks have saved or not."""
    text = emit(launch_cases.ahead())["ahead/job.sbatch"]
    assert "#SBATCH --signal=B:TERM@360\n" in text  # 300 s of grace and a minute
    assert "#SBATCH --requeue\n" in text


def test_the_job_waits_for_that_of_the_old_generation(tmp_path):
    """Its ranks may still hold the GPUs."""
    shells.write(tmp_path, emit(launch_cases.ahead()))
    argv, environment = shells.recorded(tmp_path, "ahead/submit.sh", ("sbatch",), "417")
    assert "--dependency=afterany:417" in argv
    assert environment["LIBRA_PLAN_FOLDER"] == str(tmp_path / "ahead")
    assert not any(
        "dependency" in word for word in shells.recorded(tmp_path, "ahead/submit.sh", ("sbatch",))[0]
    )


def test_the_batch_shell_passes_the_signal_on_and_waits(tmp_path):
    """Slurm signals only the batch shell; one that does not wait for the slowest kills it as it saves."""
    files = emit(launch_cases.ahead())
    (tmp_path / "tools").mkdir()
    rank = """#!/bin/sh
case "$*" in *actor*) save=0.6 ;; *) save=0.1 ;; esac
trap 'sleep $save; echo saved >> "$LOG"; exit 3' TERM
echo up >> "$LOG"
while :; do sleep 0.05; done
"""
    (tmp_path / "tools" / "srun").write_text(rank)
    (tmp_path / "tools" / "srun").chmod(0o755)
    shells.write(tmp_path, files)
    log = tmp_path / "log"
    environment = {
        "PATH": f"{tmp_path}/tools:{os.environ['PATH']}",
        "LIBRA_PLAN_FOLDER": str(tmp_path / "ahead"),
        "LOG": str(log),
    }
    job = subprocess.Popen([shutil.which("sh"), str(tmp_path / "ahead/job.sbatch")], env=environment)
    try:
        wait_for(lambda: log.exists() and log.read_text().count("up") == 2)
        job.send_signal(signal.SIGTERM)
        assert job.wait(PATIENCE_S) == 3
        assert log.read_text().count("saved") == 2
    finally:
        job.kill()
        job.wait()


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)


@settings(max_examples=20, deadline=None)
@given(words=st.lists(WORDS, max_size=3), folder=WORDS)
def test_hostile_words_stay_words(words, folder, tmp_path_factory):
    """The scripts of the ranks are the ones that carry what a user wrote."""
    place = tmp_path_factory.mktemp("slurm")
    manifest = plans.manifest_of(
        plans.cluster(1),
        plans.running("t", [plans.role("a", [["n0:0"]])]),
        command=("train.py", *words),
        lifecycle=LifecycleSpec(checkpoint_dir=folder),
    )
    shells.write(place, emit(manifest))
    argv, environment = shells.recorded(place, "t/a/n0.sh", ("torchrun",))
    (agent,) = agents_of(manifest)
    assert argv == list(agent.argv[1:])
    assert environment["LIBRA_PLAN_CHECKPOINT_DIR"] == folder


def test_a_signal_between_two_starts_reaches_both(tmp_path):
    """A job cancelled as it begins must not leave its ranks to be killed without a word."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "srun").write_text("#!/bin/sh\nkill -TERM $PPID\nexec sleep 60\n")
    (tmp_path / "tools" / "srun").chmod(0o755)
    shells.write(tmp_path, emit(launch_cases.ahead()))
    environment = {
        "PATH": f"{tmp_path}/tools:{os.environ['PATH']}",
        "LIBRA_PLAN_FOLDER": str(tmp_path / "ahead"),
    }
    job = subprocess.Popen([shutil.which("sh"), str(tmp_path / "ahead/job.sbatch")], env=environment)
    try:
        assert job.wait(PATIENCE_S) == 128 + signal.SIGTERM  # the ranks' status, not its own end
    finally:
        job.kill()
        job.wait()
