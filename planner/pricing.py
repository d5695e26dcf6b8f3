"""Price a workload with its profiles on a cluster: the frozen problem that solvers get."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import msgspec

from libra_plan.errors import WorkloadError
from libra_plan.models.clusters import resolve_gpu
from libra_plan.models.corrections import INSIDE, CorrectionsFile, RoleCorrection
from libra_plan.models.fits import Fits, fit_folder
from libra_plan.models.pricing.layout import PriceInputs, Refusals
from libra_plan.models.pricing.role import price_role
from libra_plan.models.pricing.stages import TRAINING
from libra_plan.models.pricing.switching import restart_s, sync_s, weight_gib
from libra_plan.models.pricing.work import TaskWork, work_of
from libra_plan.models.quantities import rounded
from libra_plan.models.stage_option import Coupling, CouplingKind, StageOption
from libra_plan.models.topology import Cluster, whole_class
from libra_plan.planner.problem import (
    Arrangement,
    Deadline,
    IncumbentTask,
    Policy,
    Problem,
    Quota,
    Role,
    Sharing,
    SharingKind,
    Task,
)
from libra_plan.profiles.catalog import ProfilesFolder
from libra_plan.profiles.schema import RoleSpec, TaskSpec, Trace, WorkloadFile
from libra_plan.profiles.switch_costs import SwitchPrice
from libra_plan.profiles.traces import read_trace
from libra_plan.profiles.units import MIB_PER_GIB

__all__ = ["corrected_role", "price_workload"]


def price_workload(
    folder: ProfilesFolder,
    cluster: Cluster,
    *,
    policy: Policy = Policy.THROUGHPUT,
    running: tuple[IncumbentTask, ...] = (),
    fits: Fits | None = None,
    seed: int = 0,
    allow_prior: bool = False,
    at_steps_ahead: int | None = None,
    budget_per_hour: float | None = None,
    corrections: CorrectionsFile | None = None,
    moves: Mapping[str, SwitchPrice] | None = None,
) -> Problem:
    """Price every task of a folder's workload on a cluster.

    `fits` holds the fitted profiles by name (default: `fit_folder` of this folder).
    `seed` sets the order in which trajectories meet prompts and replicas. `allow_prior` lets models
    answer outside what was measured, with wider bounds. `at_steps_ahead` prices the step so many
    steps from now, with responses as long as each task's `history_tokens` foretell. `corrections`
    multiply the stage times of the roles they were observed for. `moves` holds recorded costs of
    moving tasks.
    """
    if folder.workload is None:
        raise WorkloadError("the folder has no workload.yaml", got=str(folder.path), way_out="write one")
    if fits is None:
        classes = {whole_class(each) for each in cluster.gpu_classes}
        fits = fit_folder(folder, gpu_classes=classes, allow_prior=allow_prior)
    prices = PriceInputs(cluster, folder.profiles, fits, folder.switching, allow_prior, moves or {})
    horizon_s = folder.workload.horizon_s
    priced: dict[bytes, tuple[TaskWork, tuple[Role, ...]]] = {}  # equal tasks are priced once
    for spec in folder.workload.tasks:
        if _what_is_priced(spec) not in priced:
            work = work_of(spec, _traces(spec, folder), seed, at_steps_ahead)
            roles = tuple(_role(role, work, _coupling(spec), prices) for role in spec.roles)
            priced[_what_is_priced(spec)] = (work, roles)
    tasks = tuple(
        _task(spec, *priced[_what_is_priced(spec)], prices, horizon_s, corrections)
        for spec in folder.workload.tasks
    )
    sharing = tuple(Sharing(SharingKind(each.kind), each.tasks) for each in folder.workload.sharing)
    inputs, quotas = dict(folder.digests), _quotas(folder.workload)
    aging_s = folder.workload.aging_s
    return Problem(
        cluster, tasks, running, policy, horizon_s, inputs, quotas, budget_per_hour, aging_s, sharing
    )


def _quotas(workload: WorkloadFile) -> tuple[Quota, ...]:
    return tuple(
        Quota(team, quota.gpus, tuple(quota.gpus_of_class.items())) for team, quota in workload.quotas.items()
    )


def _what_is_priced(spec: TaskSpec) -> bytes:
    """Return what the prices of a task's roles depend on; tasks that agree in it have the same prices."""
    roles = [msgspec.structs.replace(role, command=()) for role in spec.roles]
    return msgspec.json.encode([spec.work_per_step, spec.coupling, roles])


def _task(
    spec: TaskSpec,
    work: TaskWork,
    roles: tuple[Role, ...],
    prices: PriceInputs,
    horizon_s: float,
    corrections: CorrectionsFile | None,
) -> Task:
    roles = tuple(
        corrected_role(priced, spec.id, role.profiles, corrections)
        for priced, role in zip(roles, spec.roles, strict=True)
    )
    trains = any(role.kind in TRAINING for role in spec.roles)
    rollouts = [
        prices.profiles[name]
        for role in spec.roles
        if role.kind == "rollout"
        for name in role.profiles
        if prices.profiles[name].file.phase in ("decode", "serve")
    ]
    switching = next((prices.switching[c] for c in prices.cluster.gpu_classes if c in prices.switching), None)
    trained, loaded = _state_gib(spec, roles, prices)
    handover_s = sync_s(prices.cluster, rollouts, switching, _adapter_rank(spec)) if trains else 0.0
    arrangements = frozenset(Arrangement(name) for name in spec.arrangements)
    if handover_s is None:
        arrangements &= {Arrangement.COLOCATED}
        roles = _without_handover(roles, prices.cluster, possible=bool(arrangements))
    task = Task(
        spec.id,
        spec.weight,
        roles,
        _coupling(spec),
        arrangements,
        float(work.samples),
        float(work.sequences.total),
        handover_s or 0.0,
        restart_s(spec, switching, trained, loaded, horizon_s, prices.moves.get(spec.id)),
        spec.min_gpus,
        spec.max_gpus,
        spec.roles_fill_pools,
        spec.tier,
        spec.team,
        None if spec.deadline is None else Deadline(spec.deadline.steps, spec.deadline.within_s),
        None if spec.min_steps_per_hour is None else spec.min_steps_per_hour / 3600.0,
        spec.latency_first,
        spec.waited_s,
    )
    return rounded(task)  # the same plan on every processor


def _coupling(spec: TaskSpec) -> Coupling:
    given = spec.coupling
    return Coupling(
        CouplingKind(given.kind), given.staleness_steps, given.groups, given.rollouts == "batches"
    )


def _adapter_rank(spec: TaskSpec) -> int | None:
    """Return the rank of the adapters that are handed over; None where it is whole weights."""
    adapters = [role.lora for role in spec.roles if role.kind == "rollout"]
    ranks = [adapter.rank for adapter in adapters if adapter is not None]
    return max(ranks) if ranks and len(ranks) == len(adapters) else None


def _without_handover(roles: Sequence[Role], cluster: Cluster, *, possible: bool) -> tuple[Role, ...]:
    """Note why weights cannot change pools; if the task allows no colocation, refuse the rollout."""
    key = "intra" if len(cluster.nodes) == 1 else "inter"
    said = (
        f"new weights cannot be handed over to another pool: {key}_node_gib_per_s is unknown and no"
        " switching.yaml prices a checkpoint; only colocated roles are considered"
    )
    return tuple(
        replace(role, options=role.options if possible else (), refusals=(*role.refusals, said))
        if role.kind == "rollout"
        else role
        for role in roles
    )


def _role(role: RoleSpec, work: TaskWork, coupling: Coupling, prices: PriceInputs) -> Role:
    if role.kind == "env":
        workers = role.workers or 0
        return Role(
            role.id,
            role.kind,
            cpu_workers=workers,
            cpu_cores=workers * (role.cpu_cores_per_worker or 0.0),
            host_memory_mib=workers * (role.host_memory_mib_per_worker or 0.0),
        )
    refusals = Refusals()
    options = tuple(price_role(role, work, coupling, prices, refusals))
    return Role(
        role.id,
        role.kind,
        options,
        role.min_gpus,
        role.max_gpus,
        frozenset(resolve_gpu(prices.cluster, name) for name in role.pinned_gpus),
        frozenset(resolve_gpu(prices.cluster, name) for name in role.excluded_gpus),
        role.cpu_cores_per_gpu,
        role.host_memory_mib_per_gpu,
        refusals=refusals.lines(),
    )


def _state_gib(spec: TaskSpec, roles: Sequence[Role], prices: PriceInputs) -> tuple[float, float]:
    """Return what a restart saves and loads: states that were trained, and weights that were not, GiB.

    One replica of each role counts: the others read the same files.
    """
    trained = loaded = 0.0
    for role, priced in zip(spec.roles, roles, strict=True):
        if role.kind in TRAINING:
            sizes = [
                (o.host_static_mib + o.offloaded_host_mib) * o.layout.gpus_per_replica for o in priced.options
            ]
            trained += min(sizes, default=0.0) / MIB_PER_GIB
        elif role.profiles:
            file = prices.profiles[role.profiles[0]].file
            loaded += weight_gib(file.model, file.software)
    return trained, loaded


def _traces(spec: TaskSpec, folder: ProfilesFolder) -> Mapping[str, Sequence[int]]:
    verdicts = tuple(role.verdict_tokens for role in spec.roles)
    laws = (spec.work_per_step.prompt_tokens, spec.work_per_step.response_tokens, *verdicts)
    return {law.file: read_trace(folder.path / law.file) for law in laws if isinstance(law, Trace)}


def corrected_role(
    role: Role, task: str, profiles: Collection[str], corrections: CorrectionsFile | None
) -> Role:
    """Correct the options of a role for which corrections exist; the notes of each option say so.

    A correction of a profile that the role no longer names says nothing about it.
    """
    known = None if corrections is None else corrections.by_role.get((task, role.id))
    if (
        known is None
        or not known.state.known
        or (known.profile is not None and known.profile not in profiles)
    ):
        return role
    return replace(role, options=tuple(_corrected(option, known) for option in role.options))


def _corrected(option: StageOption, known: RoleCorrection) -> StageOption:
    if known.gpu_class is not None and whole_class(option.gpu_class) != known.gpu_class:
        return option
    layout = known.layout if all(each == known.layout for each in option.layouts) else option.layout
    time_s = known.corrected(option.time_s, layout)
    if time_s is None:
        return option
    said = [f"corrected {known.words}"]
    if time_s.origin not in INSIDE:
        said.append(f"not seen where times are {time_s.origin.value}: bounds hold no correction for possible")
    return replace(option, time_s=time_s, notes=(*option.notes, *said))
