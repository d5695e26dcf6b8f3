"""Print the planner's closed forms against the engine, for every shipped world, task and way to run it.

    python benchmarks/model_against_simulator.py            # the table, on stdout
    python benchmarks/model_against_simulator.py --write    # and docs/measurements/model_against_simulator.md
    python benchmarks/model_against_simulator.py WORLD …    # of these worlds, ids or files

Each task is alone on its weighted share of the GPUs, where the exact planner puts it, with true costs, at its
first mean length and at its last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec
from simulated_steps import Case, case_of, closed_s, engine_s

from libra_plan.models.quantities import Origin, exactly
from libra_plan.planner.problem import IncumbentTask
from libra_plan.planner.simulate.noisy_cost_model import NoisyCosts
from libra_plan.planner.simulate.policy import best_in, shares, split
from libra_plan.planner.simulate.world import World, WorldTask, read_world, shipped_worlds, world_cluster

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "measurements" / "model_against_simulator.md"
COLUMNS = ("world", "task", "mean tokens", "GPUs", "stage", "closed form s", "simulated s", "error", "why")
_TOLD = 0.02  # errors beyond it get their reason
HEAD = """\
# Closed forms against the simulator

Made by `python benchmarks/model_against_simulator.py --write`; nothing is written by hand. The closed forms
are what the planner prices with, the simulator times the batch that was drawn. Every task of every shipped
world is alone on its weighted share of the GPUs, placed by the exact planner, with true costs. Simulated:
means of 3 to 40 seeds; error: closed form ÷ simulated − 1. Every task that rolls out and trains is run in
every way, its own or not; the rollout of an async task has no stage of its own, its step tells.
"""


def ways(task: WorldTask) -> Iterator[tuple[str, WorldTask]]:
    """Return the ways a task can run: its own, and where it rolls out and trains, every other."""
    if not (task.costs.decode and task.costs.train):
        yield "alone", task
        return
    sync = msgspec.structs.replace(task, coupling="sync", staleness=0, rollouts="stream")
    for arrangement in ("colocated", "separate"):
        yield f"sync, {arrangement}", msgspec.structs.replace(sync, arrangements=(arrangement,))
    beside = msgspec.structs.replace(
        task, coupling="async", staleness=max(1, task.staleness), arrangements=("separate",)
    )
    for rollouts in ("batches", "stream"):
        named = f"async η = {beside.staleness}, {rollouts}"
        yield named, msgspec.structs.replace(beside, rollouts=rollouts)


def placed(world: World, task: WorldTask, mean_tokens: float) -> Iterator[IncumbentTask]:
    """Return the exact planner's placement of a task on its weighted share of the GPUs."""
    cluster = world_cluster(world)
    parts = split(cluster, shares(cluster, {each.id: each.weight for each in world.tasks}))
    estimated = NoisyCosts(msgspec.structs.replace(world, tasks=(task,)))
    mean = exactly(mean_tokens, "tokens", Origin.MEASURED)
    yield from best_in(
        lambda part: estimated.problem(part, {task.id: mean}, [task.id]), cluster, parts[task.id]
    )


def cases(world: World) -> Iterator[tuple[str, float, Case]]:
    """Return way, mean length and case of every task; of tasks that differ in name only, the first."""
    seen = set[bytes]()
    for task in world.tasks:
        alike = msgspec.json.encode(msgspec.structs.replace(task, id="any", arrives_s=0.0))
        if alike in seen:
            continue
        seen.add(alike)
        law = task.responses
        for mean in dict.fromkeys((law.first_mean_tokens, law.last_mean_tokens or law.first_mean_tokens)):
            for way, own in ways(task):
                for held in placed(world, own, mean):
                    sizes = {role.role: [len(gpus) for gpus in role.replicas] for role in held.roles}
                    shared = len(sizes) > 1 and len({role.share_group for role in held.roles}) == 1
                    yield way, mean, case_of(world, own, sizes, mean, shared=shared)


def why(case: Case, stage: str, error: float) -> str:
    """Say what a closed form leaves out that the engine has, for a stage; "" where it is near enough."""
    task, train = case.task, case.task.costs.train
    if abs(error) <= _TOLD:
        return ""
    if stage == "rollout":
        return "the longest trajectories of a drawn batch against quantiles of the law"
    if stage == "train":
        slowest = (
            "" if train is None or not train.straggler_sigma else "; the slowest's mean against its median"
        )
        return "lengths that were drawn against quantiles" + slowest
    if stage == "step" and case.streams:
        return "the steady rate of a stream is an approximation (models/rollout/streaming.py)"
    if stage == "step" and case.overlaps and task.costs.scoring:
        return "scoring goes on trajectory by trajectory; the model ends it before training begins"
    if stage == "step" and case.overlaps:
        return "the mean of the longer of rollout and training against the longer of their typical seconds"
    return "the sum of the above" if stage == "step" else "lengths that were drawn against quantiles"


def lines(name: str, way: str, mean: float, case: Case) -> Iterator[tuple[str, ...]]:
    """Return the lines of a case."""
    closed, simulated = closed_s(case), engine_s(case)
    gpus = ", ".join(f"{role} {len(sizes)}×{sizes[0]}" for role, sizes in case.sizes.items())
    for number, stage in enumerate((*case.sizes, "step")):
        own = simulated.get(stage)
        error = None if own is None else closed[stage] / own - 1.0
        first = (name, f"{case.task.id}, {way}", f"{mean:,.0f}", gpus)
        yield (
            *(first if number == 0 else ("", "", "", "")),
            stage,
            f"{closed[stage]:.4g}",
            "" if own is None else f"{own:.4g}",
            "" if error is None else f"{error:+.1%}",
            "" if error is None else why(case, stage, error),
        )


def page(worlds: Sequence[World]) -> str:
    """Make the page."""
    rows, errors = [], dict[str, list[float]]()
    for world in worlds:
        for way, mean, case in cases(world):
            for line in lines(world.id, way, mean, case):
                rows.append("| " + " | ".join(line) + " |\n")
                if line[6]:
                    kind = line[4] if line[4] in ("rollout", "train", "step") else "scoring"
                    kind = f"step, {way.split(', ')[-1]}" if kind == "step" else kind
                    errors.setdefault(kind, []).append(float(line[5]) / float(line[6]) - 1.0)
    summary = ["\n| stage | cases | median error | worst |\n|---|---|---|---|\n"]
    for kind, found in sorted(errors.items()):
        worst = max(found, key=abs)
        summary.append(f"| {kind} | {len(found)} | {median(found):+.1%} | {worst:+.1%} |\n")
    head = "\n| " + " | ".join(COLUMNS) + " |\n|" + "|".join(["---"] * len(COLUMNS)) + "|\n"
    return HEAD + "".join(summary) + head + "".join(rows)


def main() -> None:
    """Print the page, and write it where asked."""
    shipped = shipped_worlds()
    named = [each for each in sys.argv[1:] if not each.startswith("--")]
    text = page([read_world(shipped.get(name, Path(name))) for name in named or shipped])
    sys.stdout.write(text)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
