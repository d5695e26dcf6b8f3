"""Build the manifest of a plan: tasks, queue, proof, and the steps from the parent."""

from __future__ import annotations

from dataclasses import asdict, replace

import msgspec

from libra_plan import __version__
from libra_plan.errors import ManifestError
from libra_plan.models.topology import Cluster
from libra_plan.planner.launchers import manifest as m
from libra_plan.planner.launchers.document import seal
from libra_plan.planner.launchers.joint import joint_entries, joint_groups
from libra_plan.planner.launchers.tasks import PortBook, describe_task, runs_on_as, with_rendezvous
from libra_plan.planner.launchers.transitions import Holding, transitions_between
from libra_plan.planner.plan import Certificate, Plan
from libra_plan.planner.problem import Problem
from libra_plan.profiles.schema import WorkloadFile

__all__ = ["build_manifest", "says_the_same"]

_UNSEALED = "sha256:" + 64 * "0"


def build_manifest(
    problem: Problem,
    plan: Plan,
    *,
    name: str,
    parent: m.Manifest | None = None,
    workload: WorkloadFile | None = None,
) -> m.Manifest:
    """Build the manifest of a plan, one generation after its parent; pure.

    `workload` gives commands and lifecycles; without it roles have no command. A task whose roles,
    GPUs and commands are those of the parent is kept: it stays in the generation it was started
    in, with its ports and rendezvous ids, since its processes run on.
    """
    if parent is not None and parent.metadata.name != name:
        raise ManifestError(
            "the parent manifest belongs to another cluster",
            got=parent.metadata.name,
            allowed=name,
            way_out="name the new manifest like its parent, or start without a parent",
        )
    generation = 1 if parent is None else parent.metadata.generation + 1
    nodes = _nodes(problem.cluster)
    tasks, kept = _tasks(problem, plan, workload, nodes, generation, parent)
    before = {task.id: task.gpus for task in parent.spec.tasks} if parent is not None else {}
    after = {task.id: task.gpus for task in tasks}
    jointly = {task for run in plan.joint for task in run.tasks}
    jointly |= set(parent.spec.together) if parent is not None else set()
    spec = m.Spec(
        inputs=m.ManifestInputs(
            digests=dict(sorted(problem.input_digests.items())),
            planner=__version__,
            horizon_s=problem.horizon_s,
        ),
        nodes=nodes,
        tasks=tasks,
        queued=tuple(m.QueuedEntry(task=one.task, code=one.code, reason=one.reason) for one in plan.queued),
        transitions=transitions_between(
            step
            for task in dict.fromkeys((*before, *after))
            for step in _steps(Holding(task, before.get(task), after.get(task), task in kept), jointly)
        ),
        certificate=_certificate(plan.certificate),
        joint=joint_entries(plan) or msgspec.UNSET,
    )
    metadata = m.Metadata(
        name=name,
        generation=generation,
        parent_digest=None if parent is None else parent.metadata.digest,
        digest=_UNSEALED,
    )
    return _valid(seal(m.Manifest(api_version=m.API_VERSION, kind=m.KIND, metadata=metadata, spec=spec)))


def _valid(manifest: m.Manifest) -> m.Manifest:
    """Refuse what the schema does not allow, such as a task name that could leave its folder."""
    try:
        return msgspec.convert(msgspec.to_builtins(manifest), m.Manifest)
    except msgspec.ValidationError as problem:
        raise ManifestError(
            "the plan cannot be written as a manifest",
            got=problem,
            allowed="names of letters, digits, `.`, `_` and `-` that begin and end with a letter or digit",
            way_out="rename it in workload.yaml or cluster.yaml",
        ) from None


def _steps(holding: Holding, jointly: set[str]) -> list[Holding]:
    """Use separate stops and starts for joint tasks, because their GPUs have several holders."""
    apart = holding.before is not None and holding.after is not None and not holding.unchanged
    if holding.task not in jointly or not apart:
        return [holding]
    return [replace(holding, after=None), replace(holding, before=None)]


def says_the_same(manifest: m.Manifest, parent: m.Manifest) -> bool:
    """Whether a manifest adds nothing to its parent: same inputs, nodes, tasks, queue and policy.

    Not compared is what always differs: the generation, the steps from the parent, and figures
    that the cost of those steps was part of.
    """

    def lasting(spec: m.Spec) -> tuple[object, ...]:
        queue = [(one.task, one.code) for one in spec.queued]
        proof = spec.certificate
        return spec.inputs, spec.nodes, spec.tasks, spec.joint, queue, proof.policy, proof.status

    return lasting(manifest.spec) == lasting(parent.spec)


def _tasks(
    problem: Problem,
    plan: Plan,
    workload: WorkloadFile | None,
    nodes: tuple[m.NodeEntry, ...],
    generation: int,
    parent: m.Manifest | None,
) -> tuple[tuple[m.TaskEntry, ...], frozenset[str]]:
    """Describe the running tasks, and name those that run on untouched."""
    specs = {spec.id: spec for spec in workload.tasks} if workload is not None else {}
    old = {task.id: task for task in parent.spec.tasks} if parent is not None else {}
    old_nodes = parent.spec.nodes if parent is not None else ()
    ports = PortBook(nodes, parent)
    groups = joint_groups(plan)
    described = [describe_task(problem, running, specs.get(running.task), groups) for running in plan.running]
    kept = {new.id for new in described if new.id in old and runs_on_as(old[new.id], old_nodes, new, nodes)}
    for entry in (*joint_entries(plan), *(parent.spec.joint or () if parent is not None else ())):
        if not kept.issuperset(entry.tasks):
            kept -= set(entry.tasks)  # a task that shares with one that starts anew starts anew, too
    tasks = (
        with_rendezvous(new, generation, ports, old[new.id] if new.id in kept else None) for new in described
    )
    return tuple(tasks), frozenset(kept)


def _nodes(cluster: Cluster) -> tuple[m.NodeEntry, ...]:
    return tuple(
        m.NodeEntry(
            id=node.id,
            address=node.address,
            port_range=(node.port_first, node.port_last),
            cpu_cores=node.cpu_cores,
            host_memory_mib=node.host_memory_mib,
            gpus=tuple(
                m.GpuEntry(
                    index=gpu.id.index,
                    uuid=gpu.uuid,
                    gpu_class=gpu.gpu_class,
                    memory_mib=gpu.memory_mib,
                    device=msgspec.UNSET if gpu.device is None else gpu.device,
                )
                for gpu in sorted(node.gpus, key=lambda gpu: gpu.id)
            ),
        )
        for node in cluster.nodes
    )


def _certificate(certificate: Certificate) -> m.ManifestCertificate:
    return m.ManifestCertificate(
        policy=certificate.policy,
        status=certificate.status.value,
        objective=certificate.objective,
        bound=certificate.bound,
        gap=certificate.gap,
        bounds=tuple(m.Objective(name=name, value=value) for name, value in certificate.bounds),
        baselines=tuple(m.Objective(name=name, value=value) for name, value in certificate.baselines),
        deterministic=certificate.deterministic,
        cost_per_hour=_said(certificate.cost_per_hour),
        budget_per_hour=_said(certificate.budget_per_hour),
        passes=tuple(m.PassEntry(each.name, each.objective, each.bound) for each in certificate.passes)
        or msgspec.UNSET,
        deadlines=tuple(m.DeadlineEntry(**asdict(each)) for each in certificate.deadlines) or msgspec.UNSET,
        teams=tuple(m.TeamEntry(**asdict(each)) for each in certificate.teams) or msgspec.UNSET,
        duals=dict(certificate.duals) or msgspec.UNSET,
    )


def _said(value: float | None) -> float | msgspec.UnsetType:
    return msgspec.UNSET if value is None else value
