"""Changes that leave replicas running: find them, and assign GPUs so that most replicas stay.

Where a framework is elastic, whole data-parallel replicas join and leave rollout and training while the
others go on. A change of a task is elastic when every other role stays as it is, and of rollout and training
at least one replica stays where it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from libra_plan.models.parallelism import Layout
from libra_plan.models.topology import GpuId
from libra_plan.planner.problem import IncumbentRole, IncumbentTask

__all__ = ["ElasticChange", "Gpus", "elastic_change", "with_replica"]

Gpus = tuple[GpuId, ...]
_ELASTIC = ("rollout", "train")


@dataclass(frozen=True)
class ElasticChange:
    """An elastic change: the placement at its end, that of the replicas that stay, and who joins.

    `joins` lists, by role, the GPUs of each replica that joins; `own` those GPUs that were the task's before.
    """

    wanted: IncumbentTask
    stays: IncumbentTask
    joins: tuple[tuple[str, Gpus], ...]
    own: frozenset[GpuId]


def elastic_change(before: IncumbentTask, wanted: IncumbentTask) -> ElasticChange | None:
    """Reassign the wanted GPUs so that replicas stay; None where the change is not elastic."""
    held = {role.role: role for role in before.roles}
    if set(held) != {role.role for role in wanted.roles} or not _apart(before) or not _apart(wanted):
        return None
    if any(role.placed != held[role.role].placed for role in wanted.roles if role.role not in _ELASTIC):
        return None
    best = max((w for w in (wanted, _dealt(before, wanted)) if w), key=lambda w: _staying(before, w))
    stays = tuple(_only(role, held[role.role].placed) for role in best.roles)
    if not all(role.replicas for role in stays):
        return None
    joins = tuple(
        (role.role, gpus)
        for role in best.roles
        for layout, gpus in sorted(role.placed - held[role.role].placed)
    )
    own = frozenset(gpu for role in before.roles for gpus in role.replicas for gpu in gpus)
    return ElasticChange(best, replace(best, roles=stays), joins, own)


def with_replica(held: IncumbentTask, role: str, gpus: Gpus) -> IncumbentTask:
    """Add a replica of so many GPUs to a role."""

    def more(each: IncumbentRole) -> IncumbentRole:
        return _made(each, (*_pairs(each), (Layout(tp=len(gpus)), gpus)))

    return replace(held, roles=tuple(more(each) if each.role == role else each for each in held.roles))


def _apart(held: IncumbentTask) -> bool:
    return len({role.share_group for role in held.roles}) == len(held.roles)


def _staying(before: IncumbentTask, after: IncumbentTask) -> int:
    held = {role.role: role.placed for role in before.roles}
    return sum(len(gpus) for role in after.roles for _, gpus in role.placed & held[role.role])


def _pairs(role: IncumbentRole) -> list[tuple[Layout, Gpus]]:
    return list(zip(role.mix or (role.layout,) * len(role.replicas), role.replicas, strict=True))


def _made(role: IncumbentRole, pairs: Iterable[tuple[Layout, Gpus]]) -> IncumbentRole:
    """Return a role with these replicas; layouts are told apart only where they differ."""
    found = list(pairs)
    layouts = tuple(layout for layout, _ in found)
    mix = layouts if len(set(layouts)) > 1 else ()
    largest = max(layouts, key=lambda each: each.gpus_per_replica, default=role.layout)
    return replace(role, layout=largest, replicas=tuple(gpus for _, gpus in found), mix=mix)


def _only(role: IncumbentRole, placed: frozenset[tuple[Layout, Gpus]]) -> IncumbentRole:
    return _made(role, (pair for pair in _pairs(role) if pair in placed))


def _dealt(before: IncumbentTask, wanted: IncumbentTask) -> IncumbentTask | None:
    """Keep as many replicas as are wanted on the wanted GPUs, and build the others from what is left."""
    allowed = {gpu for role in wanted.roles for gpus in role.replicas for gpu in gpus}
    missing: dict[tuple[str, Layout], int] = {}
    kept: dict[tuple[str, Layout], list[Gpus]] = {}
    for role in wanted.roles:
        for layout, count in Counter(layout for layout, _ in _pairs(role)).items():
            missing[role.role, layout] = count
    for role in before.roles:
        for layout, gpus in _pairs(role):
            if allowed.issuperset(gpus) and (role.role, layout) in missing:
                kept.setdefault((role.role, layout), []).append(gpus)
    surplus = {key: len(kept.get(key, ())) - count for key, count in missing.items()}
    left = allowed - {gpu for replicas in kept.values() for gpus in replicas for gpu in gpus}
    free: defaultdict[str, set[GpuId]] = defaultdict(set)
    for gpu in left:
        free[gpu.node].add(gpu)
    for key in sorted(missing, key=lambda each: (-each[1].gpus_per_replica, each)):
        for _ in range(-surplus[key]):
            if not _build(key, kept, surplus, free):
                return None
    if any(count > 0 for count in surplus.values()):
        return None
    return replace(wanted, roles=tuple(_filled(role, kept) for role in wanted.roles))


def _filled(role: IncumbentRole, kept: dict[tuple[str, Layout], list[Gpus]]) -> IncumbentRole:
    layouts = dict.fromkeys(layout for layout, _ in _pairs(role))
    return _made(role, ((layout, gpus) for layout in layouts for gpus in sorted(kept[role.role, layout])))


def _build(
    key: tuple[str, Layout],
    kept: dict[tuple[str, Layout], list[Gpus]],
    surplus: dict[tuple[str, Layout], int],
    free: defaultdict[str, set[GpuId]],
) -> bool:
    """Build one replica on the node where fewest replicas must leave for it."""
    size, best = key[1].gpus_per_replica, None
    for node in sorted({*free, *(gpus[0].node for replicas in kept.values() for gpus in replicas)}):
        leaving, room = [], len(free[node])
        for other in sorted(kept, key=lambda each: (each[1].gpus_per_replica, each)):
            here = [gpus for gpus in kept[other] if {gpu.node for gpu in gpus} == {node}]
            for gpus in sorted(here, reverse=True)[: max(0, surplus[other])]:
                if room < size:
                    leaving.append((other, gpus))
                    room += len(gpus)
        if room >= size and (best is None or len(leaving) < len(best[1])):
            best = (node, leaving)
    if best is None:
        return False
    node, leaving = best
    for other, gpus in leaving:
        kept[other].remove(gpus)
        surplus[other] -= 1
        free[node].update(gpus)
    taken = tuple(sorted(free[node])[:size])
    free[node].difference_update(taken)
    kept.setdefault(key, []).append(taken)
    return True
