"""The example with two programs: its plans for two H200, and the whole of it on real ranks."""

import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from libra_plan.planner.launchers.agents import AgentOptions
from libra_plan.planner.launchers.check import require_sound_manifest
from libra_plan.planner.launchers.document import read_manifest
from libra_plan.planner.launchers.torchrun import EMITTER

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_tasks"
PLANS = sorted((EXAMPLE / "h200" / "plans").glob("*/*/manifest.json"))
PROGRAM = ("python3", "-m", "torch.distributed.run")


def module(path: Path):
    """Load a script of the example as a module."""
    spec = importlib.util.spec_from_file_location(f"two_tasks_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_figures_in_the_docs_are_those_of_the_recorded_steps(tmp_path: Path) -> None:
    """Predictions change with the models; a table nobody prints again would say the old ones."""
    measured = tmp_path / "measured"
    shutil.copytree(EXAMPLE / "h200" / "measured", measured)
    words = [sys.executable, str(EXAMPLE / "h200" / "run.py"), "--compare", "--out", str(measured)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    docs = EXAMPLE.parents[1] / "docs" / "measurements" / "two_tasks_h200.md"
    assert done.stdout.strip() in docs.read_text(encoding="utf-8")


def test_every_workload_is_planned_in_both_arrangements() -> None:
    """A gain can only be measured against the other arrangement."""
    assert [path.parent.parts[-2:] for path in PLANS] == [
        (workload, arrangement) for workload in ("long", "short") for arrangement in ("colocated", "separate")
    ]


@pytest.mark.parametrize("path", PLANS, ids=lambda path: "-".join(path.parent.parts[-2:]))
def test_what_runs_on_the_gpus_is_what_the_manifest_says(path: Path) -> None:
    """Scripts edited by hand would measure another plan than the predicted one."""
    manifest = read_manifest(path)
    require_sound_manifest(manifest)
    emitted = replace(EMITTER, options=AgentOptions(program=PROGRAM)).emit(manifest)
    scripts = {Path(name).parent.name: text for name, text in emitted.items() if name.endswith(".sh")}
    assert {script.stem: script.read_text() for script in path.parent.glob("*.sh")} == scripts
    predicted = json.loads((path.parent / "predicted.json").read_text())
    (task,) = manifest.spec.tasks
    assert predicted["step_s"]["value"] == task.step_time.value
    assert {role.id: role.stage_time.value for role in task.roles} == {
        role: words["stage_s"]["value"] for role, words in predicted["roles"].items()
    }


@pytest.mark.parametrize("workload", ["short", "long"])
def test_the_chosen_arrangement_is_the_faster_one(workload: str) -> None:
    """The planner is judged by whether its choice is faster when it is measured."""
    folder = EXAMPLE / "h200" / "plans" / workload
    words = [json.loads((folder / each / "predicted.json").read_text()) for each in ("colocated", "separate")]
    chosen, other = sorted(words, key=lambda each: not each["chosen"])
    assert (chosen["chosen"], other["chosen"]) == (True, False)
    assert chosen["step_s"]["value"] < other["step_s"]["value"]


def test_work_that_the_programs_do_is_the_work_that_was_planned() -> None:
    """A trainer told another number of samples than the planner would disprove nothing."""
    for workload in ("short", "long"):
        file = yaml.safe_load((EXAMPLE / "h200" / workload / "workload.yaml").read_text())
        (task,) = file["tasks"]
        work, (generator, trainer) = task["work_per_step"], task["roles"]
        told = {role["id"]: _flags(role["command"]) for role in (generator, trainer)}
        prompt, response = work["prompt_tokens"]["tokens"], work["response_tokens"]["tokens"]
        assert told["generator"]["--samples"] == told["trainer"]["--samples"] == work["samples"]
        assert (told["generator"]["--prompt-tokens"], told["generator"]["--tokens"]) == (prompt, response)
        assert told["generator"]["--concurrency"] == generator["max_concurrency"]
        assert told["generator"]["--ahead"] == task["coupling"]["staleness_steps"]
        assert told["trainer"]["--tokens"] == prompt + response
        assert told["trainer"]["--micro-batch-tokens"] == trainer["micro_batch_tokens"]


def _flags(command: list[str]) -> dict[str, int]:
    return {
        flag: int(value) for flag, value in pairwise(command) if flag.startswith("--") and value.isdigit()
    }


def test_the_comparison_leaves_warm_up_out_and_takes_medians(tmp_path: Path) -> None:
    """The first steps build graphs and buckets; one slow step must not decide either."""
    run = module(EXAMPLE / "h200" / "run.py")
    plan = EXAMPLE / "h200" / "plans" / "short" / "separate" / "predicted.json"
    ends = [0.0, 50.0, 100.0, 109.0, 118.0, 147.0]  # steps of 50, 50, 9, 9 and 29 s
    lines = [
        {
            "role": role,
            "ended_s": end,
            "step_s": end / 100,
            "peak_reserved_mib": 7000.0,
            "device_used_mib": 1.0,
        }
        for role in ("generator", "trainer")
        for end in ends
    ]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = run.compared(plan, tmp_path)
    predicted = json.loads(plan.read_text())
    assert found["step_s"]["measured"] == 9.0
    assert found["step_s"]["error"] == pytest.approx(predicted["step_s"]["value"] / 9.0 - 1)
    assert found["roles"]["trainer"]["stage_s"]["measured"] == pytest.approx(1.18)
    assert found["roles"]["generator"]["reserved_mib"]["measured"] == 7000.0
    assert any(
        "9.000" in row for row in run.rows([{"workload": "short", "arrangement": "separate", **found}])
    )


@pytest.mark.torch
@pytest.mark.slow
def test_two_tasks_are_measured_planned_run_and_handed_over(tmp_path: Path) -> None:
    """The way from nothing to a second plan that goes on where the first was, with real ranks."""
    pytest.importorskip("torch")
    out = tmp_path / "out"
    command = [sys.executable, str(EXAMPLE / "run.py"), "--out", str(out), "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads((out / "counts.json").read_text())
    slots = {when: {each["task"]: each["slots"] for each in counted} for when, counted in counts.items()}
    assert slots["before"]["train"] > slots["after"]["train"]
    assert slots["before"]["generate"] < slots["after"]["generate"]
    assert all(each["steps"] > 0 for counted in counts.values() for each in counted)
    for task in ("train", "generate"):
        path = out / "checkpoints" / task / "steps.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        first = [each["step"] for each in lines if each["generation"] == 1]
        then = [each["step"] for each in lines if each["generation"] > 1]
        assert then[0] == first[-1] + 1, f"{task} lost or repeated steps"
