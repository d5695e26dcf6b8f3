"""Price what tasks that run jointly share: one rollout engine over the trajectories of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from libra_plan.models.lengths import LengthSample
from libra_plan.models.rollout import Trajectories
from libra_plan.planner.pricing.options import role_options
from libra_plan.planner.pricing.prices import Prices, Refusals
from libra_plan.planner.pricing.work import TaskWork
from libra_plan.planner.problem import Coupling, CouplingKind, Sharing, SharingKind
from libra_plan.profiles.schema import LoraSpec, RoleSpec, SharingSpec, TaskSpec
from libra_plan.profiles.sharing_checks import rollout_of

__all__ = ["joint_work", "priced_sharing"]


def priced_sharing(
    spec: SharingSpec,
    tasks: Mapping[str, TaskSpec],
    works: Mapping[str, TaskWork],
    prices: Prices,
    seed: int,
) -> Sharing:
    """Turn a declared set of tasks into what solvers read; `works` are the tasks' own."""
    kind = SharingKind(spec.kind)
    if kind is SharingKind.TURNS:
        return Sharing(kind, spec.tasks)
    members = [tasks[name] for name in spec.tasks]
    rollouts = [role for task in members if (role := rollout_of(task)) is not None]
    # what staleness allows each of them of one engine is not known: it serves batch by batch
    coupling = Coupling(
        CouplingKind(members[0].coupling.kind),
        min(task.coupling.staleness_steps for task in members),
        batches=True,
    )
    refusals = Refusals()
    work = joint_work([works[name] for name in spec.tasks], seed)
    options = tuple(role_options(_engine(rollouts), work, coupling, prices, refusals))
    return Sharing(kind, spec.tasks, tuple(role.id for role in rollouts), options, refusals.lines())


def _engine(rollouts: Sequence[RoleSpec]) -> RoleSpec:
    """Make the role of one engine: the rollouts are alike but for limits and adapters.

    An engine keeps a slot of its largest rank for every adapter.
    """
    largest = max(role.lora.rank for role in rollouts if role.lora is not None)
    limits = [role.max_gpus for role in rollouts if role.max_gpus is not None]
    return msgspec.structs.replace(
        rollouts[0],
        lora=LoraSpec(rank=len(rollouts) * largest),
        min_gpus=max(role.min_gpus for role in rollouts),
        max_gpus=min(limits, default=None),
    )


def joint_work(works: Sequence[TaskWork], seed: int) -> TaskWork:
    """Put the trajectories of several tasks into one queue, in orders set by `seed`."""
    rng = np.random.default_rng(seed)
    sets = zip(*(work.orders for work in works), strict=False)  # as many orders as the fewest have
    orders = tuple(_mixed(each, rng) for each in sets)
    return TaskWork(
        sum(work.samples for work in works),
        LengthSample(np.sort(np.concatenate([work.sequences.tokens for work in works]))),
        orders,
        stretch=(min(work.stretch[0] for work in works), max(work.stretch[1] for work in works)),
        notes=(
            f"one engine for the rollouts of {len(works)} tasks",
            *dict.fromkeys(note for work in works for note in work.notes),
        ),
    )


def _mixed(orders: Sequence[Trajectories], rng: np.random.Generator) -> Trajectories:
    prompts = np.concatenate([order.prompt_tokens for order in orders])
    responses = np.concatenate([order.response_tokens for order in orders])
    order = rng.permutation(len(prompts))
    return replace(orders[0], prompt_tokens=prompts[order], response_tokens=responses[order])
