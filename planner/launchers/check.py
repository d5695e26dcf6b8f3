"""Check a manifest on its own, before it is written or used; shares no code with the builder."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import rfc8785

from libra_plan.errors import ManifestError, few
from libra_plan.planner.launchers.manifest import Manifest, NodeEntry, RoleEntry, TaskEntry

__all__ = ["Flaw", "check_manifest", "require_sound_manifest"]

_NONE: frozenset[str] = frozenset()
_TOLERANCE = 1e-6  # for sums of CPU cores and MiB that were divided into shares


@dataclass(frozen=True)
class Flaw:
    """One broken rule: a stable code, the place (`task/role`, node or step) and a sentence."""

    code: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.code}: {self.where}: {self.message}"


def check_manifest(manifest: Manifest, parent: Manifest | None = None) -> list[Flaw]:
    """List everything that is wrong with a manifest; with its parent, also with the steps from there."""
    checks: tuple[Callable[[Manifest], Iterator[Flaw]], ...] = (
        _digest,
        _names,
        _roles,
        _owners,
        _joint,
        _ports,
        _host_sums,
        _steps,
    )
    found = [violation for check in checks for violation in check(manifest)]
    if parent is not None:
        found += _hand_over(manifest, parent)
    return found


def require_sound_manifest(manifest: Manifest, parent: Manifest | None = None) -> None:
    """Raise a ManifestError that lists the violations."""
    violations = check_manifest(manifest, parent)
    if violations:
        raise ManifestError(
            "the manifest breaks the rules of manifests",
            got=few([str(violation) for violation in violations], joiner="; "),
            way_out="if it came from `solve` unedited, this is a defect of ours: please report it",
        )


def _digest(manifest: Manifest) -> Iterator[Flaw]:
    document = msgspec.to_builtins(manifest)
    stated = document["metadata"].pop("digest")
    try:
        actual = "sha256:" + hashlib.sha256(rfc8785.dumps(document)).hexdigest()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError) as problem:
        yield Flaw("not-canonical", "manifest", f"it cannot be written as canonical JSON: {problem}")
        return
    if stated != actual:
        yield Flaw("digest-wrong", "metadata.digest", f"{stated} is stated, but the content has another")


def _names(manifest: Manifest) -> Iterator[Flaw]:
    spec = manifest.spec
    lists = [
        ("node", [node.id for node in spec.nodes]),
        ("task", [task.id for task in spec.tasks] + [waiting.task for waiting in spec.queued]),
        ("step", [step.id for step in spec.transitions]),
        *((f"role of {task.id}", [role.id for role in task.roles]) for task in spec.tasks),
    ]
    for kind, names in lists:
        for name, times in Counter(names).items():
            if times > 1:
                yield Flaw("name-twice", name, f"the {kind} is listed {times} times")


def _placed(manifest: Manifest) -> Iterator[tuple[str, TaskEntry, RoleEntry]]:
    for task in manifest.spec.tasks:
        for role in task.roles:
            yield f"{task.id}/{role.id}", task, role


def _roles(manifest: Manifest) -> Iterator[Flaw]:
    nodes = {node.id: node for node in manifest.spec.nodes}
    memory = {f"{node.id}:{gpu.index}": gpu.memory_mib for node in nodes.values() for gpu in node.gpus}
    for where, _, role in _placed(manifest):
        gpus = [gpu for replica in role.replicas for gpu in replica]
        if not gpus and not role.members:
            if not role.cpu:
                yield Flaw("role-unplaced", where, "it has neither GPUs nor CPU workers")
            continue
        yield from _world(where, role, gpus)
        unknown = [gpu for gpu in gpus if gpu not in memory]
        if unknown:
            yield Flaw("gpu-unknown", where, f"not in the inventory: {', '.join(unknown)}")
            continue
        yield from _replicas(where, role, nodes)
        yield from _meeting(where, role)
        peak = role.peak_memory
        small = [gpu for gpu in gpus if peak is not None and peak.high > memory[gpu]]
        if peak is not None and small:
            message = f"needs {peak.high:g} MiB, GPU {small[0]} has {memory[small[0]]:g} MiB"
            yield Flaw("memory-short", where, message)


def _world(where: str, role: RoleEntry, gpus: list[str]) -> Iterator[Flaw]:
    """Check that ranks, replicas and degrees agree, and that a mix serves every trajectory once."""
    if role.layout is None and not role.mix:
        yield Flaw("layout-missing", where, "it has GPUs but no layout")
        return
    ranks = [f"{member.node}:{index}" for member in role.members for index in member.gpus]
    sizes = [len(replica) for replica in role.replicas]
    if role.mix:
        if role.layout is not None:
            yield Flaw("layout-missing", where, "it has a layout of its own and a mix")
        wanted = [kind.tp * kind.pp * kind.cp for kind in role.mix]
        if sizes != wanted:
            yield Flaw("world-size", where, f"replicas of {sizes} GPUs, but {wanted}")
        served = sorted(at for kind in role.mix for at in range(kind.start, kind.stop, kind.stride))
        if served != list(range(len(served))):
            yield Flaw("ranges", where, "its replicas leave out trajectories, or serve some twice")
    elif role.layout is not None:
        tp, pp, cp, dp = role.layout.tp, role.layout.pp, role.layout.cp, role.layout.dp
        world = f"tp {tp} × pp {pp} × cp {cp} × dp {dp} = {tp * pp * cp * dp}"
        if len(ranks) != tp * pp * cp * dp:
            yield Flaw("world-size", where, f"{len(ranks)} ranks, but {world}")
        if sizes != [tp * pp * cp] * dp:
            yield Flaw("world-size", where, f"replicas of {sizes} GPUs, but {world}")
    if ranks != gpus:
        yield Flaw("rank-order", where, "members and replicas do not list the same GPUs in one order")
    if len(set(ranks)) < len(ranks):
        yield Flaw("gpu-twice", where, "a GPU has two ranks of the role")


def _replicas(where: str, role: RoleEntry, nodes: dict[str, NodeEntry]) -> Iterator[Flaw]:
    order = {node: number for number, node in enumerate(nodes)}
    for replica in role.replicas:
        names = [gpu.rpartition(":") for gpu in replica]
        places = [(node, int(index)) for node, _, index in names]
        keys = [(order[node], index) for node, index in places]
        if keys != sorted(keys):
            yield Flaw("rank-order", where, f"ranks are not in (node, GPU) order: {' '.join(replica)}")
        used = Counter(node for node, _ in places)
        if len(used) > 1 and any(count < _of_class(nodes[node], places) for node, count in used.items()):
            message = f"a replica straddles nodes without filling them: {' '.join(replica)}"
            yield Flaw("replica-straddles", where, message)
    listed = Counter(member.node for member in role.members)
    for node, times in listed.items():
        if times > 1:
            yield Flaw("rank-order", where, f"node {node} comes {times} times among the members")


def _of_class(node: NodeEntry, places: list[tuple[str, int]]) -> int:
    """Count the GPUs of a node that are of the classes a replica has there."""
    classes = {gpu.gpu_class for gpu in node.gpus if (node.id, gpu.index) in places}
    return sum(gpu.gpu_class in classes for gpu in node.gpus)


def _meeting(where: str, role: RoleEntry) -> Iterator[Flaw]:
    meeting = role.rendezvous
    first = role.members[0] if role.members else None
    if meeting is None or first is None or meeting.node != first.node:
        yield Flaw("rendezvous-node", where, "the ranks do not meet on the node of rank 0")
    elif meeting.port != first.port:
        yield Flaw("rendezvous-port", where, f"port {meeting.port} is not that of rank 0, {first.port}")


def _owners(manifest: Manifest) -> Iterator[Flaw]:
    """Check that every GPU belongs to one task or joint run, and within it to one role or share group."""
    owners: dict[str, set[tuple[str, str]]] = defaultdict(set)
    together = {task: "+".join(entry.tasks) for task, entry in manifest.spec.together.items()}
    for where, task, role in _placed(manifest):
        owner = together.get(task.id, task.id)
        group = where if role.share_group is None else f"{owner}/{role.share_group} (shared)"
        for replica in role.replicas:
            for gpu in replica:
                owners[gpu].add((owner, group))
    for gpu, found in sorted(owners.items()):
        if len(found) > 1:
            names = ", ".join(sorted(group for _, group in found))
            code = "gpu-two-tasks" if len({task for task, _ in found}) > 1 else "gpu-two-groups"
            yield Flaw(code, gpu, f"taken by {names}")


def _joint(manifest: Manifest) -> Iterator[Flaw]:
    """Check that joint runs are of tasks there are, each in one, with every GPU role in one turn."""
    running = {task.id: task for task in manifest.spec.tasks}
    entries = manifest.spec.joint or ()
    for name, times in Counter(name for entry in entries for name in entry.tasks).items():
        if name not in running or times > 1:
            yield Flaw("joint-task", name, f"runs jointly {times} times, and runs: {name in running}")
    for entry in entries:
        where = "+".join(entry.tasks)
        roles = Counter(name for turn in entry.turns for name in turn)
        known = [task for name in entry.tasks if (task := running.get(name)) is not None]
        placed = Counter(f"{task.id}/{role.id}" for task in known for role in task.roles if role.members)
        if roles != placed:
            yield Flaw("joint-turns", where, "its turns do not have every role with GPUs once")


def _ports(manifest: Manifest) -> Iterator[Flaw]:
    ranges = {node.id: node.port_range for node in manifest.spec.nodes}
    taken: dict[tuple[str, int], str] = {}
    for where, _, role in _placed(manifest):
        for member in role.members:
            first, last = ranges.get(member.node, (0, -1))
            if not first <= member.port <= last:
                message = f"port {member.port} is outside {first}-{last} of node {member.node}"
                yield Flaw("port-range", where, message)
            other = taken.setdefault((member.node, member.port), where)
            if other != where:
                yield Flaw("port-twice", where, f"port {member.port} on {member.node} is that of {other}")


def _host_sums(manifest: Manifest) -> Iterator[Flaw]:
    """Add up what the roles take on every node and compare it with the inventory."""
    cores: dict[str, float] = defaultdict(float)
    memory: dict[str, float] = defaultdict(float)
    for _, _, role in _placed(manifest):
        for member in role.members:
            cores[member.node] += role.cpu_cores_per_gpu * len(member.gpus)
            memory[member.node] += role.host_memory_mib_per_gpu * len(member.gpus)
        for share in role.cpu:
            cores[share.node] += share.cpu_cores
            memory[share.node] += share.host_memory_mib
    nodes = {node.id: node for node in manifest.spec.nodes}
    for name in sorted(cores.keys() | memory.keys()):
        if name not in nodes:
            yield Flaw("node-unknown", name, "roles are placed on a node that is not in the inventory")
            continue
        node = nodes[name]
        for code, asked, there, unit in (
            ("cpu-short", cores[name], node.cpu_cores, "CPU cores"),
            ("host-memory-short", memory[name], node.host_memory_mib, "MiB of host memory"),
        ):
            if asked > _TOLERANCE and (there is None or asked > there * (1 + _TOLERANCE)):
                known = "an unknown number" if there is None else f"{there:g}"
                yield Flaw(code, name, f"{asked:g} {unit} asked, {known} there")


def _steps(manifest: Manifest) -> Iterator[Flaw]:
    """Check the steps' names and that nothing grows before what could make room for it shrinks."""
    running = {task.id: task for task in manifest.spec.tasks}
    last = {step.task: step for step in manifest.spec.transitions}
    waits_for: dict[str, set[str]] = {}
    grown: list[str] = []
    for step in manifest.spec.transitions:
        for earlier in step.after:
            if earlier not in waits_for:
                yield Flaw("step-order", step.id, f"it waits for {earlier}, which does not come before it")
        waits_for[step.id] = set(step.after).union(*(waits_for.get(one, set()) for one in step.after))
        if step.gpus_after < step.gpus_before:
            if grown and waits_for[step.id].isdisjoint(grown):
                yield Flaw("step-order", step.id, f"it frees GPUs but comes after {grown[0]}")
        elif step.gpus_after > step.gpus_before:
            grown.append(step.id)
        if step.action != "stop" and step.task not in running:
            yield Flaw("step-task", step.id, f"no task {step.task} runs in this manifest")
    for task in running:
        if task not in last or last[task].action == "stop":
            yield Flaw("step-missing", task, "the task runs, but no step leads there")
    for task, step in last.items():
        if step.action != "stop" and task in running:
            stated, gpus = step.gpus_after, len(running[task].gpus)
            if stated != gpus:
                yield Flaw("step-count", task, f"its step ends with {stated} GPUs, it has {gpus}")


def _hand_over(manifest: Manifest, parent: Manifest) -> Iterator[Flaw]:
    """Follow the steps from the parent and check that no GPU ever has two holders."""
    if manifest.metadata.parent_digest != parent.metadata.digest:
        yield Flaw("parent-other", "metadata.parentDigest", "it is not the digest of the parent given")
    if manifest.metadata.generation != parent.metadata.generation + 1:
        message = f"{manifest.metadata.generation} does not follow {parent.metadata.generation}"
        yield Flaw("generation-order", "metadata.generation", message)
    before = {task.id: task.gpus for task in parent.spec.tasks}
    after = {task.id: task.gpus for task in manifest.spec.tasks}
    held = dict(before)
    now = dict(parent.spec.together)  # what each task shares with whom, as steps are taken
    for step in manifest.spec.transitions:
        held[step.task] = _NONE if step.action == "stop" else after.get(step.task, _NONE)
        now.pop(step.task, None)
        if step.action != "stop" and step.task in manifest.spec.together:
            now[step.task] = manifest.spec.together[step.task]
        if step.action == "keep" and held[step.task] != before.get(step.task, _NONE):
            yield Flaw("step-keep", step.id, "the task is to be kept, but its GPUs differ from the parent's")
        for other, gpus in held.items():
            both = gpus & held[step.task]
            shares = step.task in now and now[step.task] == now.get(other)
            if other != step.task and both and not shares:
                message = f"{', '.join(sorted(both))} would be taken while {other} holds it"
                yield Flaw("step-clash", step.id, message)
    for task in sorted(held.keys() | after.keys()):
        if held.get(task, _NONE) != after.get(task, _NONE):
            yield Flaw("step-missing", task, "no step takes the task from the parent to this manifest")
