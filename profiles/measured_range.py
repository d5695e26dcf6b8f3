"""Which micro-batches and layouts of a workload lie beyond what its profiles measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from libra_plan.profiles.schema import LayoutSpec, Point, RoleSpec, WorkloadFile

if TYPE_CHECKING:
    from libra_plan.profiles.catalog import LoadedProfile

__all__ = ["longest_measured", "unmeasured_asks"]

_OCTAVE = 2


def longest_measured(points: Iterable[Point]) -> int:
    """Give the longest sequence that ran, tokens: a micro-batch is packed as one of them."""
    return int(max((p.seq_len_tokens or 0 for p in points if p.status == "ok"), default=0))


def unmeasured_asks(workload: WorkloadFile, profiles: Mapping[str, LoadedProfile]) -> Iterator[str]:
    """Tell of micro-batches and layouts that `solve` refuses for want of measurements."""
    for task in workload.tasks:
        for role in task.roles:
            points = [p for name in role.profiles if name in profiles for p in profiles[name].points]
            if points:
                yield from (f"{task.id}/{role.id}: {said}" for said in _asks(role, points))


def _asks(role: RoleSpec, points: Iterable[Point]) -> Iterator[str]:
    points = list(points)
    longest, cp = longest_measured(points), max((each.cp for each in role.layouts), default=1)
    tokens = (role.micro_batch_tokens or 0) * cp
    if longest and tokens > _OCTAVE * longest:
        yield (
            f"micro_batch_tokens {role.micro_batch_tokens} is beyond what was measured, up to {longest} "
            f"tokens: solve refuses a full micro-batch above {_OCTAVE * longest} without --allow-prior"
        )
    known = {(p.tp, p.pp, p.cp, p.ep) for p in points if p.status == "ok"}
    for layout in role.layouts:
        if (layout.tp, layout.pp, layout.cp, layout.ep) not in known:
            yield (
                f"layouts: {_words(layout)} is not measured by any of its profiles: solve refuses it without "
                "--allow-prior"
            )


def _words(layout: LayoutSpec) -> str:
    return "{" + ", ".join(f"{name}: {getattr(layout, name)}" for name in ("tp", "pp", "cp", "ep")) + "}"
