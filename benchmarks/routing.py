"""Run the routing study, or write docs/routing.md from its committed results.

    python benchmarks/routing.py --run --seeds 6 --jobs 2   # benchmarks/routing/results.json
    python benchmarks/routing.py                            # docs/routing.md

Rules × mixes of replicas × worlds × seeds, paired: all rules of a seed meet the same trajectories. The law
of outcomes was committed before any rule was run on it (planner/simulate/work.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from routing_cases import COSTS, FOLDER, WORLDS, Case, Mix, every_case, promised, world_of
from routing_page import page
from routing_rules import RoutedDealer, routed_by

from libra_plan.planner.problem import IncumbentTask
from libra_plan.planner.simulate.engine import Engine
from libra_plan.planner.simulate.policy import FixedPlacement, hold
from libra_plan.planner.simulate.world import World

RESULTS = FOLDER / "results.json"
PAGE = Path(__file__).parents[1] / "docs" / "routing.md"
FIRST_STEPS = 2
"""Steps of a stream that are not counted: it starts empty."""


def placed(world: World, mix: Mix) -> IncumbentTask:
    """Place the rollout on the first GPUs, largest replicas first, and the training of a stream behind it."""
    (task,) = world.tasks
    trained = {} if task.costs.train is None else {"train": [task.costs.train.gpus]}
    return hold(world, task.id, rollout=mix.sizes, **trained)


def run(case: Case, seeds: int) -> dict[str, Any]:
    """Run a case with every seed."""
    world = case.world
    found: dict[str, list[float]] = {"tokens_per_s": [], "step_s": [], "right": [], "moved": []}
    for seed in range(seeds):
        engine = Engine(
            world, FixedPlacement(placed(world, case.mix)), seed, dealer_of=routed_by(case.routing)
        )
        steps = engine.run(None).steps
        skipped = FIRST_STEPS if case.mode == "stream" else 0
        begun = steps[skipped - 1].at_s if skipped else 0.0
        seconds = steps[-1].at_s - begun
        dealer = engine.runs[world.tasks[0].id].dealer
        assert isinstance(dealer, RoutedDealer)
        router = dealer.router
        found["tokens_per_s"].append(sum(step.tokens for step in steps[skipped:]) / seconds)
        found["step_s"].append(seconds / len(steps[skipped:]))
        found["right"].append(router.routed.right / router.routed.ended)
        found["moved"].append(router.routed.moved_tokens / router.routed.tokens)
    names = {"world": case.name, "costs": case.costs, "mode": case.mode, "telling": case.telling}
    figures = {key: [float(f"{value:.4g}") for value in values] for key, values in found.items()}
    return {**names, "mix": case.mix.name, "form": case.mix.form, "rule": case.rule, **figures}


def study(seeds: int, jobs: int) -> Iterator[dict[str, Any]]:
    """Run everything, in order."""
    from joblib import Parallel, delayed

    everything = list(every_case())
    runs = Parallel(n_jobs=jobs, return_as="generator")(delayed(run)(case, seeds) for case in everything)
    for number, row in enumerate(runs, start=1):
        rate = f"{mean(row['tokens_per_s']):,.0f} tokens/s"
        names = ", ".join(row[key] for key in ("world", "costs", "mode", "mix", "rule"))
        print(f"{number}/{len(everything)} {names}: {rate}", file=sys.stderr)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--run", action="store_true", help="run the study first")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    if asked.run:
        promises = [promised(name, costs, world_of(name, costs)) for name in WORLDS for costs in COSTS]
        rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in study(asked.seeds, asked.jobs))
        planned = json.dumps(promises, ensure_ascii=False)
        RESULTS.write_text(f'{{"promised": {planned},\n"rows": [\n{rows}\n]}}\n', encoding="utf-8")
    PAGE.write_text(page(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
