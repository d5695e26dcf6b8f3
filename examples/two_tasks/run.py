"""Measure two programs on this machine, plan, launch, count, plan anew, hand over and count again.

    python examples/two_tasks/run.py --out run

Needs libra-plan and torch. Everything is written to the folder: profiles, manifests, logs,
checkpoints, and what each step took.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from slots import write_profiles

HERE = Path(__file__).resolve().parent
SLOTS = 4
LAUNCHED_S = 60.0  # in which both tasks must have done a step
WARM_UP = 2  # steps not counted


class Demo:
    """The example in one folder; every command is shown before it runs."""

    def __init__(self, out: Path) -> None:
        self.out = out.resolve()
        paths = [str(HERE), os.environ.get("PYTHONPATH")]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "OMP_NUM_THREADS": "1",
        }

    def run(self, *command: str, check: bool = True) -> None:
        """Run a command in the folder; unless told otherwise, its failure ends the example."""
        print(f"\n$ {' '.join(command)}", flush=True)
        subprocess.run(self._found(command), check=check, cwd=self.out, env=self.environment)

    def _found(self, command: tuple[str, ...]) -> list[str]:
        if command[0] == "libra-plan":
            return [sys.executable, "-m", "libra_plan.cli", *command[1:]]
        return [sys.executable, "-m", "torch.distributed.run", *command[1:]]

    def measure(self) -> None:
        """Measure the programs with all slots at work, and write the profiles."""
        script = str(HERE / "measure.py")
        self.run("torchrun", "--standalone", "--nproc-per-node", str(SLOTS), script, "--out", "measured.json")
        write_profiles(self.out / "measured.json", self.out, SLOTS)
        shutil.copy(HERE / "cluster.yaml", self.out)
        shutil.copy(HERE / "workload.yaml", self.out)

    def weigh(self, **weights: float) -> None:
        """Change the tasks' weights in the workload."""
        path = self.out / "workload.yaml"
        workload = yaml.safe_load(path.read_text())
        for task in workload["tasks"]:
            task["weight"] = weights[task["id"]]
        path.write_text(yaml.safe_dump(workload, sort_keys=False))
        print(f"\nweights: {', '.join(f'{task} {weight:g}' for task, weight in weights.items())}", flush=True)

    # ------------------------------------------------------------ counting

    def manifest(self) -> dict[str, Any]:
        """Read the plan that lies in the folder."""
        found: dict[str, Any] = json.loads((self.out / "plan" / "manifest.json").read_text())
        return found

    def steps(self, task: str, generation: int) -> list[dict[str, Any]]:
        """Read what every counted step of a task took under a generation of it."""
        path = self.out / "checkpoints" / task / "steps.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [step for step in found if step["generation"] == generation][WARM_UP:]

    def count(self, seconds: float) -> list[dict[str, Any]]:
        """Let the plan run for a while; give each task's ranks, predicted and measured seconds a step."""
        tasks = self.manifest()["spec"]["tasks"]
        until = time.monotonic() + LAUNCHED_S
        while not all(self.steps(task["id"], task["generation"]) for task in tasks):
            if time.monotonic() > until:
                sys.exit(f"no steps after {LAUNCHED_S:.0f} s: see {self.out}/libra-plan-run/logs")
            time.sleep(0.2)
        time.sleep(seconds)
        return [self._counted(task) for task in tasks]

    def _counted(self, task: dict[str, Any]) -> dict[str, Any]:
        steps = self.steps(task["id"], task["generation"])
        lasted_s = steps[-1]["ended_s"] - steps[0]["began_s"]
        tokens = sum(step["tokens"] for step in steps)
        return {
            "task": task["id"],
            "generation": task["generation"],
            "slots": steps[-1]["world_size"],
            "steps": len(steps),
            "predicted_step_s": task["stepTime"]["value"],
            "measured_step_s": lasted_s / len(steps),
            "tokens_per_s": tokens / lasted_s,
        }


def shown(title: str, counts: list[dict[str, Any]]) -> None:
    """Print what was counted."""
    print(f"\n{title}\n{'task':10}slots   steps   step s predicted   measured   tokens/s")
    for each in counts:
        print(
            f"{each['task']:10}{each['slots']:5}{each['steps']:8}{each['predicted_step_s']:19.3f}"
            f"{each['measured_step_s']:11.3f}{each['tokens_per_s']:11,.0f}"
        )
    sys.stdout.flush()


def main() -> None:
    """Go through it all."""
    parser = argparse.ArgumentParser(description="Run the example from measuring to the second count.")
    parser.add_argument("--out", type=Path, default=Path("two-tasks-run"), help="folder; emptied first")
    parser.add_argument("--seconds", type=float, default=8.0, help="for which each plan's steps are counted")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    demo = Demo(given.out)
    try:
        demo.measure()
        demo.weigh(train=3, generate=1)
        demo.run("libra-plan", "solve", ".", "--policy", "max-min", "--out", "plan")
        demo.run("libra-plan", "launch", "plan", "--detach", "--yes", "--allow-unknown-gpus")
        before = demo.count(given.seconds)
        shown("before", before)
        demo.weigh(train=1, generate=3)
        demo.run("libra-plan", "solve", ".", "--policy", "max-min", "--out", "plan")
        demo.run("libra-plan", "apply", "plan", "--yes", "--allow-unknown-gpus")
        after = demo.count(given.seconds)
        shown("after", after)
        demo.run("libra-plan", "throughput", "telemetry")
    finally:
        demo.run("libra-plan", "stop", "--yes", check=False)
    (given.out / "counts.json").write_text(json.dumps({"before": before, "after": after}, indent=1) + "\n")


if __name__ == "__main__":
    main()
