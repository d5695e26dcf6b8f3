"""Plan both workloads for two H200 in both arrangements, and write scripts and predictions.

    python examples/two_tasks/h200/plan.py

Needs libra-plan and no GPU. `run.py` then needs nothing but torch and what is written here: for each
workload and arrangement the manifest, its scripts (`libra-plan emit torchrun`) and `predicted.json`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from libra_plan.models.fit import fit_profile
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import load_folder, shipped_folder

HERE = Path(__file__).parent
WORKLOADS = ("short", "long")
ARRANGEMENTS = ("colocated", "separate")  # both roles on both GPUs in turn; one GPU for each (equal split)


def libra_plan(*words: str) -> str:
    """Run the command line and give what it prints."""
    command = [sys.executable, "-m", "libra_plan.cli", *words]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def solve(workload: dict[str, Any], arrangements: tuple[str, ...]) -> str:
    """Solve a workload with some of the arrangements allowed; give the manifest as JSON."""
    (task,) = workload["tasks"]
    allowed = {**workload, "tasks": [{**task, "arrangements": list(arrangements)}]}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "workload.yaml").write_text(yaml.safe_dump(allowed))
        cluster = str(HERE / "cluster.yaml")
        return libra_plan("solve", folder, "--cluster", cluster, "--deterministic", "--format", "json")


def predicted(workload: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
    """Take times from the manifest, and each role's memory from the models it was planned with."""
    (task,) = manifest["spec"]["tasks"]
    work = workload["tasks"][0]["work_per_step"]
    context = work["prompt_tokens"]["tokens"] + work["response_tokens"]["tokens"]
    specs = {role["id"]: role for role in workload["tasks"][0]["roles"]}
    roles = {}
    for role in task["roles"]:
        spec, replicas = specs[role["id"]], role["layout"]["dp"]
        if role["kind"] == "rollout":
            batch = min(-(-work["samples"] // replicas), spec["max_concurrency"])
            memory = memory_of(spec["profiles"][0], Query(batch, context))
        else:
            batch = spec["micro_batch_tokens"] // context
            memory = memory_of(spec["profiles"][0], Query(batch, context, dp=replicas))
        gpus = [gpu for member in role["members"] for gpu in member["gpus"]]
        bound_mib = round(role["peakMemory"]["high"])  # of the GPU: with the other role, if they share it
        roles[role["id"]] = {"gpus": gpus, "stage_s": role["stageTime"], "reserved_mib": memory}
        roles[role["id"]]["gpu_bound_mib"] = bound_mib
    return {"step_s": task["stepTime"], "roles": roles}


def memory_of(name: str, query: Query) -> dict[str, float]:
    """Predict the memory that one rank reserves."""
    profile = load_folder(shipped_folder()).profiles[name]
    estimate = fit_profile(profile.file, profile.points).memory_mib(query)
    return {"value": round(estimate.value), "low": round(estimate.low), "high": round(estimate.high)}


def write_scripts(manifest: Path) -> None:
    """Write a script for each role beside the manifest."""
    with tempfile.TemporaryDirectory() as folder:
        program = "program=python3 -m torch.distributed.run"
        libra_plan("emit", "torchrun", str(manifest), "--out", folder, "--option", program)
        for script in Path(folder).glob("*/*/node0.sh"):
            shutil.copy(script, manifest.parent / f"{script.parent.name}.sh")


def main() -> None:
    """Write `plans/` anew."""
    plans = HERE / "plans"
    shutil.rmtree(plans, ignore_errors=True)
    for name in WORKLOADS:
        workload = yaml.safe_load((HERE / name / "workload.yaml").read_text())
        best = json.loads(solve(workload, ARRANGEMENTS))
        choice = "colocated" if best["spec"]["tasks"][0]["roles"][0]["shareGroup"] else "separate"
        for arrangement in ARRANGEMENTS:
            out = plans / name / arrangement
            out.mkdir(parents=True)
            manifest = solve(workload, (arrangement,))
            (out / "manifest.json").write_text(manifest)
            write_scripts(out / "manifest.json")
            words = {"chosen": arrangement == choice, **predicted(workload, json.loads(manifest))}
            (out / "predicted.json").write_text(json.dumps(words, indent=1) + "\n")


if __name__ == "__main__":
    main()
