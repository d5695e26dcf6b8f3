"""Make the results of docs/evaluation.md: worlds × policies × seeds, and closed forms against the engine.

    python benchmarks/evaluation_sweep.py                        # everything: many hours on few cores
    python benchmarks/evaluation_sweep.py --worlds drift-search-48 --policies libra,ours --seeds 0-4
    python benchmarks/evaluation.py                              # then the page

Each world and set of seeds has one file in benchmarks/evaluation/, written after every run. What is in it is
not run again, so that an interrupted sweep goes on, and more policies may be added later. A world that was
changed since is refused. Hours are the world's own unless `--hours` says less.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.models.quantities import Origin, exactly
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.noisy_cost_model import NoisyCosts
from libra_plan.planner.simulate.policies import POLICIES
from libra_plan.planner.simulate.policy import PARAMS, FixedPlacement
from libra_plan.planner.simulate.sweep import Case, sweep
from libra_plan.planner.simulate.world import World, read_world, shipped_worlds, world_cluster

RESULTS = Path(__file__).parent / "evaluation"
STEPS = 24
"""Steps of a task that closed forms are held against; the first quarter is left out."""


def main() -> int:
    """Run what is not there yet."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    shipped = shipped_worlds()
    for name in shipped if options.worlds == "all" else options.worlds.split(","):
        world = read_world(shipped.get(name, Path(name)))
        fill(world, _policies(options.policies), _seeds(options.seeds), options)
    return 0


def fill(world: World, policies: list[str], seeds: range, options: argparse.Namespace) -> None:
    """Make the runs of one file that it lacks."""
    path = options.out / f"{world.id}-seeds-{seeds[0]}-{seeds[-1]}.json"
    whole_hours = world.hours
    world = msgspec.structs.replace(world, hours=min(whole_hours, options.hours or whole_hours))
    data = _known(path, world, whole_hours)
    there = {(run["policy"], run["seed"]) for run in data["runs"]}
    cases = [Case(world, p, seed) for seed in seeds for p in policies if (p, seed) not in there]
    print(f"{path.name}: {len(there)} runs are there, {len(cases)} to make", file=sys.stderr)
    if not data["errors"]:
        data["errors"] = errors_of(world, seeds[0])
        _write(path, data)
    for figures, _ in sweep(cases, options.jobs, options.backend):
        data["runs"].append(msgspec.to_builtins(figures))
        data["runs"].sort(key=lambda run: (run["seed"], list(POLICIES).index(run["policy"])))
        _write(path, data)
        print(
            f"{world.id} {figures.policy} {figures.seed}: {figures.weighted:.4f}", file=sys.stderr, flush=True
        )


def _known(path: Path, world: World, whole_hours: float) -> dict[str, Any]:
    digest = hashlib.sha256(msgspec.json.encode(world)).hexdigest()[:16]
    if not path.exists():
        head = {"world": world.id, "hours": world.hours, "whole_hours": whole_hours, "gpus": world.site.gpus}
        return {**head, "digest": digest, "runs": [], "errors": []}
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if data["digest"] != digest:
        raise SystemExit(f"{path} is of another {world.id} (or of other --hours): remove it, or give --out")
    return data


def _write(path: Path, data: dict[str, Any]) -> None:
    """Write in one go, so that a stop leaves the file whole."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    beside.replace(path)


def errors_of(world: World, seed: int) -> list[dict[str, Any]]:
    """Hold the closed forms' step time of every task against the simulated one.

    Each task runs alone, on its part of the best plan for all at true costs; lengths do not drift, nothing
    fails. What differs is the form alone.
    """
    whole, true = world_cluster(world), NoisyCosts(world, None)
    means = {t.id: exactly(t.responses.first_mean_tokens, "tokens", Origin.MEASURED) for t in world.tasks}
    plan = solve_problem(true.problem(whole, means, [task.id for task in world.tasks]), PARAMS).require_plan()
    held = {each.task: each for each in held_by(plan)}
    found = []
    in_turn = {task for run in plan.joint for task in run.tasks}
    for running in (each for each in plan.running if each.task not in in_turn):
        seconds = running.configuration.step_time_s.value
        task = world.task_of[running.task]
        steady = msgspec.structs.replace(task.responses, last_mean_tokens=None, steps=None)
        alone = msgspec.structs.replace(task, responses=steady, arrives_s=0.0, steps=STEPS)
        hours = STEPS * 4.0 * seconds / 3600.0
        still = msgspec.structs.replace(world, tasks=(alone,), failures=None, hours=hours)
        steps = run_world(still, FixedPlacement(held[running.task]), seed).steps
        begun = len(steps) // 4
        if begun:
            took = (steps[-1].at_s - steps[begun - 1].at_s) / (len(steps) - begun)
            found.append({"task": running.task, "coupling": task.coupling, "predicted_s": seconds,
                          "simulated_s": took, "steps": len(steps) - begun})  # fmt: skip
    return found


def _policies(text: str) -> list[str]:
    names = list(POLICIES) if text == "all" else text.split(",")
    if wrong := [name for name in names if name not in POLICIES]:
        raise SystemExit(f"no such policy: {', '.join(wrong)}; there are {', '.join(POLICIES)}")
    return names


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worlds", default="all", help="shipped worlds or files, with commas (all)")
    parser.add_argument("--policies", default="all", help="policies, with commas (all)")
    parser.add_argument("--seeds", default="0-4", help="first to last seed (0-4)")
    parser.add_argument("--hours", type=float, help="simulate so many hours of each world at most")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--backend", default="loky", choices=("loky", "dask", "ray"))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
