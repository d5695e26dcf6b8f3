"""Price one role: an option for every GPU class, layout and replica count that can be answered."""

from __future__ import annotations

from collections.abc import Iterator

from libra_plan.errors import RefusedError
from libra_plan.models.parallelism import Layout, layout_faults
from libra_plan.models.sharing import whole_class
from libra_plan.planner.pricing.layout_pricing import ASSUMED_RESIDUAL_MIB, Frame
from libra_plan.planner.pricing.mixed import mixed_options
from libra_plan.planner.pricing.prices import Prices, Refusals
from libra_plan.planner.pricing.replicas import largest_node, replica_counts, widest_replica
from libra_plan.planner.pricing.rollout_stage import Rollout
from libra_plan.planner.pricing.stage import Stage
from libra_plan.planner.pricing.stages import stage_of
from libra_plan.planner.pricing.work import TaskWork
from libra_plan.planner.problem import Coupling, StageOption
from libra_plan.profiles.schema import RoleSpec

__all__ = ["ASSUMED_RESIDUAL_MIB", "Prices", "Refusals", "role_options"]


def role_options(
    role: RoleSpec, work: TaskWork, coupling: Coupling, prices: Prices, refusals: Refusals
) -> Iterator[StageOption]:
    """Price a GPU role; what cannot be priced goes to `refusals` and costs the others nothing."""
    for gpu_class in prices.cluster.gpu_classes:
        measured_on = whole_class(gpu_class)
        names = [n for n in role.profiles if prices.profiles[n].file.hardware.gpu_class == measured_on]
        if gpu_class != measured_on and not (role.shares_gpu and _may_share(gpu_class, prices, refusals)):
            continue
        if not names:
            measured = sorted({prices.profiles[name].file.hardware.gpu_class for name in role.profiles})
            refusals.add(gpu_class, f"the role's profiles were measured on {', '.join(measured)}, not on it")
            continue
        try:
            stage = stage_of(role, names, work, coupling, prices)
        except RefusedError as refusal:
            refusals.add(gpu_class, refusal)
            continue
        layouts = [Layout(each.tp, each.pp, each.cp, each.ep) for each in role.layouts]
        for way, alone in stage.ways():
            for layout in layouts or stage.profile.layouts or (Layout(),):
                if gpu_class == measured_on or layout.gpus_per_replica == 1:
                    yield from _layout_options(role, way, layout, gpu_class, work, prices, refusals)
            if role.mixed_layouts is not None and isinstance(way, Rollout) and not alone:
                of_class = layouts or list(stage.profile.layouts)
                yield from mixed_options(role, way, of_class, gpu_class, work, prices, refusals)


def _may_share(gpu_class: str, prices: Prices, refusals: Refusals) -> bool:
    """Tell whether it was measured what two processes on one GPU of this class leave each other."""
    measured = prices.sharing(gpu_class)
    if not measured:
        refusals.add(gpu_class, "no switching.yaml says what two processes on one GPU leave each other")
    return bool(measured)


def _layout_options(
    role: RoleSpec,
    stage: Stage,
    layout: Layout,
    gpu_class: str,
    work: TaskWork,
    prices: Prices,
    refusals: Refusals,
) -> Iterator[StageOption]:
    form = f"{gpu_class} {layout}"
    for fault in layout_faults(layout, stage.profile.profile.model):
        refusals.add(form, fault)
        return
    node_gpus = largest_node(prices.cluster, gpu_class)
    size = layout.gpus_per_replica
    if size > node_gpus and size % node_gpus:
        refusals.add(form, f"{size} GPUs per replica neither fit in a node of {node_gpus} nor fill nodes")
        return
    if size > widest_replica(prices.cluster, gpu_class):
        refusals.add(
            form, f"a replica of {size} GPUs needs {size // node_gpus} whole nodes of one NVLink domain"
        )
        return
    try:
        price = Frame(stage, layout, gpu_class, prices, work, role).pricer()
    except RefusedError as refusal:
        refusals.add(form, refusal)
        return
    of_class = sum(gpu.gpu_class == gpu_class for gpu in prices.cluster.gpus.values())
    most = of_class if role.max_gpus is None else min(of_class, role.max_gpus)
    most = min(most, 1) if gpu_class != whole_class(gpu_class) else most  # NCCL takes a GPU for one rank
    counts = replica_counts(size, role.min_gpus, most, work.samples, node_gpus, len(role.pinned_gpus))
    if not counts:
        refusals.add(form, f"no replica count fits {role.min_gpus} to {most} GPUs and {work.samples} samples")
    for replicas in counts:
        try:
            yield price(replicas)
        except RefusedError as refusal:
            refusals.add(form, refusal, replicas)
