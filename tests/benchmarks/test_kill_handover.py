"""The harness that kills supervisors, with few kills: it must find no fault, and must be able to find one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from handover_cases import case

import libra_plan

HARNESS = Path(__file__).parents[2] / "benchmarks" / "kill_handover.py"


@pytest.mark.slow
def test_a_supervisor_killed_anywhere_loses_nothing():
    """A supervisor is one more process that dies; what it was doing must not die with it."""
    both = [  # at once: mostly they wait
        subprocess.Popen(
            [sys.executable, str(HARNESS), *words],
            env={
                "PYTHONPATH": str(Path(libra_plan.__file__).resolve().parent.parent),
                "PATH": "/usr/bin:/bin",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for words in (("--kills", "6"), ("--each-record", "--stride", "14"))
    ]
    for done in both:
        out, err = done.communicate(timeout=600)
        assert done.returncode == 0, out + err
        result = json.loads(out)
        assert result["faults"] == []
        assert result["kills"] >= 4


def test_lost_steps_and_doubled_gpus_would_be_seen(tmp_path):
    """A check that finds nothing must be one that could."""
    with case(tmp_path) as lab:
        events = [
            {"event": "begin", "task": "a", "step": 0},
            {"event": "saved", "task": "a", "step": 30},
            {"event": "begin", "task": "a", "step": 15},
            {"event": "double", "task": "b", "role": "actor", "gpu": 1},
        ]
        (tmp_path / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
        assert lab.faults() == [
            "a began again at step 15, but had saved 30",
            "a: the checkpoint of step 30 is gone",
            "GPU 1 was given to b/actor while it was in use",
        ]
