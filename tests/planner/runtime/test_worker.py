"""What training loops call: a checkpoint is complete or does not count, and a request is answered once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

import libra_plan
from libra_plan.planner.runtime import worker
from libra_plan.planner.runtime.worker import (
    REQUEST,
    await_release,
    checkpoint_requested,
    latest_complete,
    read_request,
    report,
    save_complete,
    step_folder,
)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Forget what other tests asked of this process, and which task it belongs to."""
    monkeypatch.setattr(worker, "_own", worker._Own())
    for name in ("CHECKPOINT_DIR", "GENERATION", "PROGRESS_FILE"):
        monkeypatch.delenv(f"LIBRA_PLAN_{name}", raising=False)


def save(folder, step, text="weights", **more):
    (step_folder(step, folder) / "model.pt").write_text(text)
    return save_complete(step, ["model.pt"], folder, **more)


def ask(folder, identity="r1", generation=3):
    request = {"id": identity, "generation": generation, "drain": True}
    (folder / REQUEST).write_text(json.dumps(request), encoding="utf-8")


def test_the_newest_complete_checkpoint_is_found(tmp_path):
    """Steps are compared as numbers; each says under what it was written."""
    assert latest_complete(tmp_path / "none") is None
    assert latest_complete(tmp_path) is None
    for step in (9, 10, 1_000_000_000):
        save(tmp_path, step, world_size=4)
    found = latest_complete(tmp_path)
    assert (found.step, found.world_size, found.request) == (1_000_000_000, 4, None)
    assert found.folder == tmp_path / "step-1000000000"
    assert found.save_s >= 0.0


@pytest.mark.parametrize("damage", ["unfinished", "short", "missing", "zeroed", "renamed", "no-object"])
def test_what_is_not_complete_does_not_count(tmp_path, damage):
    """A033, A076: a folder that a crash left behind must not pass for progress."""
    save(tmp_path, 1)
    folder = save(tmp_path, 2)
    if damage == "unfinished":
        (folder / "complete.json").unlink()
    elif damage == "short":
        (folder / "model.pt").write_text("w")
    elif damage == "missing":
        (folder / "model.pt").unlink()
    elif damage == "zeroed":
        (folder / "complete.json").write_bytes(b"\0" * 100)
    elif damage == "no-object":
        (folder / "complete.json").write_text("[]")
    else:
        folder.rename(tmp_path / "step-000000003")
    assert latest_complete(tmp_path).step == 1


def test_a_request_is_answered_once_and_named_in_the_checkpoint(tmp_path):
    """The supervisor knows by the id that this checkpoint is newer than its order."""
    assert checkpoint_requested(tmp_path) is None
    ask(tmp_path)
    assert checkpoint_requested(tmp_path).id == "r1"
    save(tmp_path, 5)
    assert latest_complete(tmp_path).request == "r1"
    assert checkpoint_requested(tmp_path) is None
    ask(tmp_path, "r2")
    assert checkpoint_requested(tmp_path).id == "r2"


def test_a_request_to_another_generation_is_not_ours(tmp_path, monkeypatch):
    """What is left of an old order must not stop the new generation."""
    monkeypatch.setenv("LIBRA_PLAN_GENERATION", "4")
    ask(tmp_path, generation=3)
    assert checkpoint_requested(tmp_path) is None
    ask(tmp_path, generation=4)
    assert checkpoint_requested(tmp_path) is not None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 1}', '{"id": "x", "generation": null, "drain": 1}'])
def test_a_request_that_cannot_be_read_is_none(tmp_path, text):
    """A training loop must not fail for a file that is not there yet."""
    (tmp_path / REQUEST).write_text(text)
    assert checkpoint_requested(tmp_path) is None


def test_a_checkpoint_between_requests_names_none(tmp_path):
    """A periodic save is no answer to anybody."""
    ask(tmp_path)
    checkpoint_requested(tmp_path)
    save(tmp_path, 1)
    save(tmp_path, 2)
    assert [
        json.loads((tmp_path / f"step-00000000{n}/complete.json").read_text())["request"] for n in (1, 2)
    ] == [
        "r1",
        None,
    ]


def test_waiting_ends_when_the_request_is_withdrawn(tmp_path):
    """A move that is called off must let the old generation go on."""
    await_release(tmp_path)  # nothing was asked
    ask(tmp_path)
    checkpoint_requested(tmp_path)
    save(tmp_path, 1)
    waiting = threading.Thread(target=await_release, args=(tmp_path,), kwargs={"poll_s": 0.01})
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    (tmp_path / REQUEST).unlink()
    waiting.join(60)
    assert not waiting.is_alive()


def test_reports_come_once_and_from_rank_0_alone(tmp_path, monkeypatch):
    """Eight ranks that report are not eight starts."""
    path = tmp_path / "progress.jsonl"
    report("warm")  # nobody listens
    monkeypatch.setenv("LIBRA_PLAN_PROGRESS_FILE", str(path))
    monkeypatch.setenv("RANK", "1")
    report("warm")
    assert not path.exists()
    monkeypatch.setenv("RANK", "0")
    for mark in ("loading", "loaded", "loaded", "warm"):
        report(mark)
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert [entry["mark"] for entry in entries] == ["loading", "loaded", "warm"]
    assert entries[0]["boot_s"] <= entries[2]["boot_s"]
    with pytest.raises(ValueError, match="allowed: polls, loading"):
        report("hot")


def test_a_folder_must_be_known(monkeypatch, tmp_path):
    """Without the launcher's environment, saying nothing would look like being saved."""
    with pytest.raises(RuntimeError, match="checkpoint_dir"):
        step_folder(1)
    assert checkpoint_requested() is None
    monkeypatch.setenv("LIBRA_PLAN_CHECKPOINT_DIR", str(tmp_path))
    save(None, 1)
    assert latest_complete().step == 1


def test_it_comes_with_the_package_and_loads_the_standard_library_only():
    """A training loop must not get solvers and their libraries into its process."""
    script = (
        "import sys; before = set(sys.modules); import libra_plan; libra_plan.latest_complete('x');"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}"
        " - set(sys.stdlib_module_names)))"
    )
    paths = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.stdout.split() == ["libra_plan"]
    assert libra_plan.latest_complete is latest_complete
    with pytest.raises(AttributeError):
        _ = libra_plan.no_such_name


@pytest.mark.parametrize(
    "wrong",
    [
        {"step": 1e999},
        {"step": 5.5},
        {"step": True},
        {"step": 2**64},
        {"files": [{"path": "f", "bytes": 1e999}]},
        {"files": [{"path": "\0", "bytes": 1}]},
        {"files": [{"path": "\ud800", "bytes": 1}]},
        {"files": [3]},
        {"files": 3},
    ],
)
def test_a_completion_that_says_nonsense_completes_nothing(tmp_path, wrong):
    """A supervisor and every later start read it; none may end of it."""
    (step_folder(5, tmp_path) / "f").write_text("x")
    path = save_complete(5, ["f"], tmp_path) / "complete.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **wrong}))
    assert latest_complete(tmp_path) is None
    path.write_text("[" * 100_000)
    assert latest_complete(tmp_path) is None


def test_what_a_completion_says_in_another_form_is_unknown(tmp_path):
    """A text in place of seconds went into the journal, which could not be read any more."""
    (step_folder(5, tmp_path) / "f").write_text("x")
    path = save_complete(5, ["f"], tmp_path) / "complete.json"
    odd = {"save_s": "fast", "world_size": "4", "generation": -1, "request": [1]}
    path.write_text(json.dumps({**json.loads(path.read_text()), **odd}))
    found = latest_complete(tmp_path)
    assert (found.step, found.save_s, found.world_size) == (5, None, None)
    assert (found.generation, found.request) == (None, None)
    (tmp_path / "request.json").write_text('{"id": "q", "generation": 1e999, "drain": true}')
    assert read_request(tmp_path) is None
