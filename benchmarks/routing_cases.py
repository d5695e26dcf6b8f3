"""What the routing study runs: worlds, decode costs, mixes of replicas with their buckets, and rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from routing_rules import Bucket, Routing

from libra_plan.models.lengths import IntArray, sample_lengths
from libra_plan.models.parallelism import Layout
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.makespan import Trajectories
from libra_plan.models.rollout.mixed import MixedRollout, ReplicaKind, mixed_rollout
from libra_plan.planner.simulate.work import read_tokens, turn_counts
from libra_plan.planner.simulate.world import DecodeCosts, Training, World, WorldTask, read_world

FOLDER = Path(__file__).parent / "routing"
WORLDS = ("r2e-32", "search-512", "search-512-early")
COSTS = ("roofline", "doublings", "steep")
MODES = {"batch": COSTS, "stream": COSTS[:2]}
"""Ways to roll out, and the costs that each is run with."""
TELLING = (0.0, 1.0)
"""What tools tell, besides what was published: nothing, and everything they can."""
DOUBLINGS = {1: 1.0, 2: 1.6, 4: 1.6 * 1.45, 8: 1.6 * 1.45 * 1.25}
"""How much faster a step is on 2, 4 and 8 GPUs: published medians per doubling (models/priors/layouts.py)."""
STEEP = {1: 1.0, 2: 1.149, 4: 1.320, 8: 1.516}
"""How much less a sequence costs per step on 2, 4 and 8 GPUs (the other terms as by roofline).

Of the costs with no term below the roofline these come nearest to Libra's study of 8 × TP-1 against TP-8 at
a batch of 512 (0–2K tokens: 1,852 and 591 tokens/s; 16–32K: 430 and 1,220). No step that is affine meets
both figures.
"""
LIBRA_PATTERN = (4, 2, 1, 1)
"""Replicas of a node in Libra's production file, and the bounds it gives its buckets, tokens."""
LIBRA_BUCKETS = (Bucket(tp=1, upto_tokens=4_000), Bucket(tp=2, upto_tokens=12_000), Bucket(tp=4))
TOLD_RULES = ("c-mlfq", "c-mlfq, ours")
"""Rules that are also run with other `telling`."""
HISTORY = 4
"""Passes over its prompts that a tree has learnt from, where it has learnt."""


@dataclass(frozen=True)
class Mix:
    """Replicas of a rollout by their GPUs, largest first, and the bounds of their buckets.

    `promised_s` is what the planner's model promises for a step of known lengths; None: it did not choose
    it.
    """

    name: str
    sizes: tuple[int, ...]
    buckets: tuple[Bucket, ...]
    promised_s: float | None = None

    @property
    def form(self) -> str:
        """Say how many replicas of which sizes it has."""
        return " + ".join(f"{number} × tp{size}" for size, number in Counter(self.sizes).items())


@dataclass(frozen=True)
class Case:
    """One row of the study. `telling` None: as the world says."""

    name: str
    costs: str
    mode: str
    world: World
    mix: Mix
    rule: str
    routing: Routing
    telling: float | None = None


def cases(name: str, costs: str, mode: str) -> Iterator[Case]:
    """List the rows of one world, one set of costs and one way to roll out."""
    world = world_of(name, costs)
    mixes = mixes_of(world)
    if mode == "stream":
        world = streaming(world)
    for mix in mixes:
        for rule, routing in rules_of(mix):
            yield Case(name, costs, mode, world, mix, rule, routing)
    (task,) = world.tasks
    assert task.outcomes is not None
    for telling in TELLING if (costs, mode) == (COSTS[0], "batch") else ():
        outcomes = replace(task.outcomes, telling=telling)
        told = replace(world, tasks=(replace(task, outcomes=outcomes),))
        for mix in (mix for mix in mixes if len(mix.buckets) > 1):
            for rule, routing in rules_of(mix):
                if rule in TOLD_RULES:
                    yield Case(name, costs, mode, told, mix, rule, routing, telling)


def every_case() -> Iterator[Case]:
    """List all rows of the study."""
    for mode, costs in MODES.items():
        for name in WORLDS:
            for each in costs:
                yield from cases(name, each, mode)


def streaming(world: World) -> World:
    """Let rollouts go on beside a training that takes no time, one version late at most."""
    (task,) = world.tasks
    train = Training(gpus=8, per_token_s=1e-12, micro_batch_tokens=65_536)
    costs = replace(task.costs, train=train)
    task = replace(task, coupling="async", staleness=1, steps=2 + (task.steps or 1), costs=costs)
    return replace(world, tasks=(task,), site=replace(world.site, gpus=world.site.gpus + train.gpus))


def world_of(name: str, costs: str) -> World:
    """Read a world of the study, and give it its decode costs."""
    world = read_world(FOLDER / f"{name}.yaml")
    (task,) = world.tasks
    if costs != "roofline":
        one = task.costs.decode[0]
        decode = tuple(
            (_doubled if costs == "doublings" else _steep)(one, each) for each in task.costs.decode
        )
        task = replace(task, costs=replace(task.costs, decode=decode))
    return replace(world, tasks=(task,), look_s=1e6)


def _doubled(one: DecodeCosts, other: DecodeCosts) -> DecodeCosts:
    by = DOUBLINGS[other.tp]
    return replace(
        other,
        fixed_s=one.fixed_s / by,
        per_sequence_s=one.per_sequence_s / by,
        per_token_s=one.per_token_s / by,
        prefill_s_per_token=one.prefill_s_per_token / by,
    )


def _steep(one: DecodeCosts, other: DecodeCosts) -> DecodeCosts:
    return replace(other, per_sequence_s=one.per_sequence_s / STEEP[other.tp])


def promised(name: str, costs: str, world: World) -> dict[str, str | float]:
    """Return the planner's seconds of its mix: with known lengths, and ranked by what a prompt tells."""
    (task,) = world.tasks
    assert task.outcomes is not None
    error = math.sqrt(1.0 - task.outcomes.prompt_share) * task.responses.sigma
    sizes = [each.tp for each in task.costs.decode]
    known, _ = planned(task, world.site.gpus, sizes)
    ranked, _ = planned(task, world.site.gpus, sizes, error)
    return {
        "world": name,
        "costs": costs,
        "known_s": round(known.makespan_s.value, 1),
        "ranked_s": round(ranked.expected_s, 1),
        "uniform_s": round(known.uniform_s or math.nan, 1),
    }


def planned(
    task: WorldTask, gpus: int, sizes: Sequence[int], ranking_error: float = 0.0
) -> tuple[MixedRollout, IntArray]:
    """Let the planner mix replicas of these sizes for the law of lengths; with the lengths, longest first."""
    assert task.outcomes is not None
    assert task.tools is not None
    law = task.responses.law(task.responses.mean_at(0))
    whole = sample_lengths(law, task.samples).tokens
    read = read_tokens(whole)
    prompts = np.random.default_rng(0).permutation(sample_lengths(task.prompts, task.samples).tokens) + read
    turns = round(float(turn_counts(task.outcomes, whole, task.turns).mean()))
    work = Trajectories(prompts, whole - read, turns, task.tools.mean_s)
    kinds = [
        ReplicaKind(
            Layout(tp=each.tp),
            each.coefficients(),
            Admission(each.max_sequences, each.kv_tokens),
            each.prefill_s_per_token * prompts,
        )
        for each in task.costs.decode
        if each.tp in sizes
    ]
    rng = np.random.default_rng(0)
    found = mixed_rollout(work, kinds, gpus, ranking_error=ranking_error, rng=rng)
    return found, np.sort(whole - read)[::-1]


def mixes_of(world: World) -> list[Mix]:
    """List the mixes: all alike, what the planner chooses, and the pattern of Libra's file."""
    (task,) = world.tasks
    gpus, sizes = world.site.gpus, [each.tp for each in task.costs.decode]
    found = [Mix(f"all tp{size}", (size,) * (gpus // size), (Bucket(tp=size),)) for size in sizes]
    chosen, lengths = planned(task, gpus, sizes)
    found.append(_of_plan(chosen, lengths))
    pattern = LIBRA_PATTERN * (gpus // world.site.gpus_per_node)
    found.append(Mix("libra", tuple(sorted(pattern, reverse=True)), LIBRA_BUCKETS))
    return found


def _of_plan(chosen: MixedRollout, lengths: IntArray) -> Mix:
    """Bound each bucket by the share of trajectories that the plan gives to replicas of its size."""
    served: Counter[int] = Counter()
    for each in chosen.replicas:
        served[each.layout.gpus_per_replica] += len(range(each.start, each.stop, each.stride))
    sizes, shortest, buckets = sorted(served), np.sort(lengths), []
    below = 0
    for size in sizes:
        below += served[size]
        last = size == sizes[-1]
        buckets.append(Bucket(tp=size, upto_tokens=None if last else float(shortest[below - 1])))
    replicas = sorted((each.layout.gpus_per_replica for each in chosen.replicas), reverse=True)
    return Mix("planned", tuple(replicas), tuple(buckets), chosen.makespan_s.value)


def rules_of(mix: Mix) -> Iterator[tuple[str, Routing]]:
    """List the rules that differ on a mix, by name."""
    yield "emptiest", Routing(router="emptiest", buckets=mix.buckets)
    if len(mix.buckets) > 1:
        causal = Routing(router="c-mlfq", buckets=mix.buckets)
        learnt = replace(causal, history_epochs=HISTORY)
        yield "mlfq", Routing(router="mlfq", buckets=mix.buckets)
        yield "c-mlfq, new prompts", causal
        yield "c-mlfq", learnt
        yield "c-mlfq, ours", replace(learnt, any_prompt=True, start="emptiest")
        yield "oracle", Routing(router="oracle", buckets=mix.buckets)
