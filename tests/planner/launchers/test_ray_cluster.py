"""A task's Ray cluster sees the task's GPUs only, and shares no port or folder with another."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import launch_cases
import plans
import pytest
import shells
from live import PATIENCE_S, wait_for

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.base import configured, find_emitter

OPTIONS = Path(__file__).parents[2] / "data" / "launchers" / "ray_start_2.60.0.txt"


def starts(manifest, **options):
    """Read the `ray start` lines by task and node."""
    found = {}
    for path, text in configured(find_emitter("ray"), options).emit(manifest).items():
        last = text.splitlines()[-1]
        if last.startswith("exec ray"):
            task, _, node = path.split("/")
            found[task, node.removesuffix(".sh")] = shlex.split(last)[1:]
    return found


def value(argv, flag):
    return argv[argv.index(flag) + 1]


def test_every_flag_is_one_of_ray_start():
    """An unknown flag ends `ray start` with an error on every node."""
    known = set(OPTIONS.read_text().split())
    for make in (launch_cases.gaps, launch_cases.whole_nodes, launch_cases.ppo):
        for argv in starts(make()).values():
            assert argv[:2] == ["ray", "start"]
            assert {word for word in argv if word.startswith("--")} <= known


def test_two_tasks_of_a_node_share_no_port_and_no_folder():
    """A013: two jobs of one host met on a port; `ray stop` would end both clusters."""
    ports = []
    folders = set()
    for argv in starts(launch_cases.gaps()).values():
        single = [int(value(argv, flag)) for flag in argv if flag.endswith("-port") and "worker" not in flag]
        workers = range(int(value(argv, "--min-worker-port")), int(value(argv, "--max-worker-port")) + 1)
        ports += [*single, *workers]
        folders.add(value(argv, "--temp-dir"))
    assert len(set(ports)) == len(ports)
    assert len(folders) == 2
    assert max(ports) < 32_768


def test_the_raylet_counts_what_it_is_shown():
    """A002: visible GPUs, Ray's count and the configuration disagreed."""
    files = find_emitter("ray").emit(launch_cases.gaps())
    script = files["first/ray/n0.sh"]
    assert "export CUDA_VISIBLE_DEVICES=0,2,5,7\n" in script
    assert "--num-gpus 4 " in script


def test_a_kept_task_keeps_its_ports_and_folder():
    """Its cluster runs on when another task comes or goes."""
    where = plans.cluster(4)
    stays = plans.running("stays", [plans.role("train", [["n0:3"]])])
    first = plans.manifest_of(where, plans.running("goes", [plans.role("train", [["n0:0"]])]), stays)
    second = plans.manifest_of(where, stays, parent=first)
    assert starts(first)["stays", "n0"] == starts(second)["stays", "n0"]


def test_what_would_collide_is_refused():
    """Ports of the rendezvous, ports that Linux deals out, folders too long for a socket."""
    manifest = launch_cases.gaps()
    for options, reason in (
        ({"port_base": "24000"}, "are for rendezvous"),
        ({"port_base": "32700"}, "Linux hands out"),
        ({"folder": "/" + "x" * 60}, "too long"),
    ):
        with pytest.raises(ManifestError, match=reason):
            starts(manifest, **options)
    with pytest.raises(ManifestError, match="wrong value"):
        starts(manifest, folder="/a b; touch gone")


def test_the_driver_waits_for_all_gpus_and_hands_words_on(tmp_path):
    """Ray leaves what does not fit pending for ever; hostile words stay words."""
    words = ["a b", "$(touch gone)", "'", "--x", "", "é\n"]
    shells.write(tmp_path, find_emitter("ray").emit(launch_cases.ahead()))
    argv, environment = shells.recorded(
        tmp_path, "ahead/ray/driver.sh", ("python3", "train"), "train", *words
    )
    assert argv == words
    assert environment["RAY_ADDRESS"] == "10.0.0.1:10000"
    assert not list(tmp_path.rglob("gone"))


def test_stopping_ends_the_recorded_process_and_no_other(tmp_path):
    """A number is given to another process later; the start time tells them apart."""
    where = plans.cluster(1)
    lifecycle = plans.LifecycleSpec(grace_s=5.0)
    manifest = plans.manifest_of(
        where, plans.running("t", [plans.role("a", [["n0:0"]])]), lifecycle=lifecycle
    )
    files = find_emitter("ray").emit(manifest)
    moved = {path: text.replace("/var/tmp", str(tmp_path)) for path, text in files.items()}
    shells.write(tmp_path, moved)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "ray").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "tools" / "ray").chmod(0o755)
    shell = shutil.which("sh")
    path = {"PATH": f"{tmp_path}/tools:{os.environ['PATH']}"}
    process = subprocess.Popen([shell, "t/ray/n0.sh"], cwd=tmp_path, env=path)
    try:
        wait_for(lambda: any(len(path.read_text().split()) == 2 for path in tmp_path.rglob("n0.pid")))
        (record,) = tmp_path.rglob("n0.pid")
        fields = record.read_text().split()
        record.write_text(f"{fields[0]} {int(fields[1]) + 1}\n")
        subprocess.run([shell, "t/ray/n0-stop.sh"], cwd=tmp_path, check=True)
        assert process.poll() is None
        record.write_text(" ".join(fields) + "\n")
        stopping = subprocess.Popen([shell, "t/ray/n0-stop.sh"], cwd=tmp_path)
        assert process.wait(PATIENCE_S) == -15
        assert stopping.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_real_cluster_starts_with_the_planned_number_of_gpus(tmp_path):
    """Ray itself is the judge of the flags; no GPU is needed, it counts what it is told."""
    pytest.importorskip("ray", reason="Ray is not installed")
    ray = Path(sys.executable).parent / "ray"
    where = plans.Cluster("lab", (plans.node("n0", 8, None),))
    manifest = plans.manifest_of(where, plans.running("t", [plans.role("a", [["n0:5"], ["n0:7"]])]))
    folder = Path("/dev/shm") / f"lp{os.getpid()}"  # a socket's path must be short
    files = configured(find_emitter("ray"), {"folder": str(folder), "wait_s": "60"}).emit(manifest)
    shells.write(tmp_path, files)
    environment = {**os.environ, "PATH": f"{ray.parent}:{os.environ['PATH']}", "RAY_AUTH_MODE": "disabled"}
    small = tmp_path / "t/ray/n0.sh"
    text = small.read_text().splitlines()
    start = shlex.split(text[-1])
    start[start.index("--object-store-memory") + 1] = str(80 * 2**20)  # less than a test machine's
    small.write_text("\n".join([*text[:-1], shlex.join(start)]) + "\n")
    process = subprocess.Popen([shutil.which("sh"), str(small)], env=environment, stdout=subprocess.DEVNULL)
    try:
        program = "import ray; ray.init(log_to_driver=False); print(ray.nodes()[0]['Labels'])"
        done = subprocess.run(
            [shutil.which("sh"), str(tmp_path / "t/ray/driver.sh"), sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "'libra-plan.node': 'n0'" in done.stdout
        subprocess.run([shutil.which("sh"), str(tmp_path / "t/ray/n0-stop.sh")], env=environment, check=True)
        process.wait(60)
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)
