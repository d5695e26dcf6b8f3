"""Whether the GPUs of a manifest are free and visible here; what NVML cannot tell is unknown."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from libra_plan.errors import InputError, LaunchError
from libra_plan.planner.launchers.agents import Agent
from libra_plan.planner.launchers.manifest import GpuEntry, NodeEntry
from libra_plan.planner.telemetry.nvml import Card, read_cards

__all__ = [
    "GpuCheck",
    "GpuReport",
    "GpuUse",
    "check_gpus_free",
    "check_visible",
    "gpus_free",
    "gpus_unknown",
]

_IDLE_MIB = 1024.0  # an idle H200 shows 527 MiB; a process with a CUDA context takes several hundred more


class GpuUse(str, Enum):
    """What is known about a GPU before roles are started on it."""

    FREE = "free"
    BUSY = "busy"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class GpuReport:
    """The result of a check of one GPU; `detail` names the holder, or why nothing is known."""

    gpu: str
    state: GpuUse
    detail: str = ""

    def __str__(self) -> str:
        return f"GPU {self.gpu} {self.state.value}" + (f" ({self.detail})" if self.detail else "")


_WAYS = {
    GpuUse.BUSY: "stop their holders",
    GpuUse.UNKNOWN: "if you know that the unknown are free, add allow_unknown_gpus (--allow-unknown-gpus)",
}

GpuCheck = Callable[[str, tuple[GpuEntry, ...]], tuple[GpuReport, ...]]


def gpus_unknown(node: str, gpus: tuple[GpuEntry, ...]) -> tuple[GpuReport, ...]:
    """Report that nothing is known, which is not the same as free."""
    return tuple(
        GpuReport(f"{node}:{gpu.index}", GpuUse.UNKNOWN, "nothing reads the GPUs here") for gpu in gpus
    )


def gpus_free(node: str, gpus: tuple[GpuEntry, ...]) -> tuple[GpuReport, ...]:
    """Report each GPU as free, busy or unknown, joined by UUID where the manifest has one."""
    try:
        cards = read_cards()
    except InputError as error:
        why = f"{error.what}: {error.got}"  # its advice is for planning, not for launching
        return tuple(GpuReport(f"{node}:{gpu.index}", GpuUse.UNKNOWN, why) for gpu in gpus)
    by_uuid = {card.uuid: card for card in cards}
    by_index = {card.index: card for card in cards}
    return tuple(
        _report(node, gpu, by_index.get(gpu.card) if gpu.uuid is None else by_uuid.get(gpu.uuid))
        for gpu in gpus
    )


def _report(node: str, gpu: GpuEntry, card: Card | None) -> GpuReport:
    name = f"{node}:{gpu.index}"
    if card is None:
        return GpuReport(name, GpuUse.BUSY, f"no such card here: {gpu.uuid or gpu.index}")
    if card.index != gpu.card:
        return GpuReport(name, GpuUse.BUSY, f"card {gpu.uuid} now has index {card.index}: solve again")
    if card.mig:
        return GpuReport(name, GpuUse.BUSY, "the card is in MIG mode")
    if card.processes and gpu.card != gpu.index:
        pids = ", ".join(map(str, card.processes))
        return GpuReport(name, GpuUse.UNKNOWN, f"pids {pids} have its other seat, or this one")
    if card.processes:
        return GpuReport(name, GpuUse.BUSY, f"pids {', '.join(map(str, card.processes))}")
    if card.used_mib is None:
        return GpuReport(name, GpuUse.UNKNOWN, "NVML does not tell its memory")
    if card.used_mib > _IDLE_MIB:
        return GpuReport(name, GpuUse.BUSY, f"{card.used_mib:,.0f} MiB in use by processes not seen here")
    return GpuReport(name, GpuUse.FREE)


def check_gpus_free(
    node: NodeEntry,
    agents: Iterable[Agent],
    check: GpuCheck,
    *,
    allow_unknown: bool,
    held: Collection[str] = (),
) -> tuple[GpuReport, ...]:
    """Check the GPUs to be used; refuse busy ones, and unknown ones unless allowed.

    Those that we `held` ourselves (`node:index`) may be busy yet.
    """
    used = {index for agent in agents for index in agent.gpus}
    gpus = tuple(gpu for gpu in node.gpus if gpu.index in used)
    reports = check(node.id, gpus) if gpus else ()
    answered = {report.gpu for report in reports}
    missing = tuple(gpu for gpu in gpus if f"{node.id}:{gpu.index}" not in answered)
    reports = (*reports, *gpus_unknown(node.id, missing))
    bad = [
        report
        for report in reports
        if (report.state is GpuUse.BUSY and report.gpu not in held)
        or (report.state is GpuUse.UNKNOWN and not allow_unknown)
    ]
    if bad:
        raise LaunchError(
            f"GPUs of node {node.id} are not known to be free",
            got="; ".join(_grouped(bad)),
            allowed=f"{len(reports)} free GPUs; {len(reports) - len(bad)} are",
            way_out="; ".join(way for state, way in _WAYS.items() if any(one.state is state for one in bad)),
        )
    return tuple(reports)


def _grouped(reports: Iterable[GpuReport]) -> Iterator[str]:
    """Group GPUs with the same finding into one line."""
    groups: dict[tuple[GpuUse, str], list[str]] = {}
    for report in reports:
        groups.setdefault((report.state, report.detail), []).append(report.gpu)
    for (state, detail), gpus in groups.items():
        word = "GPU" if len(gpus) == 1 else "GPUs"
        yield f"{word} {', '.join(gpus)} {state.value}" + (f" ({detail})" if detail else "")


def check_visible(node: NodeEntry, agents: Iterable[Agent], environment: Mapping[str, str]) -> None:
    """Refuse planned GPUs that CUDA_VISIBLE_DEVICES of the caller hides: they are someone else's.

    An entry may be an index, a UUID or the beginning of one UUID, as CUDA reads it.
    """
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return
    visible = {
        index for entry in text.split(",") if (index := _visible_index(entry.strip(), node)) is not None
    }
    cards = {gpu.index: gpu.card for gpu in node.gpus}
    planned = {cards.get(index, index) for agent in agents for index in agent.gpus}
    hidden = sorted(planned - visible)
    if hidden:
        raise LaunchError(
            f"the manifest places roles on GPUs of node {node.id} that are not visible here",
            got=f"CUDA_VISIBLE_DEVICES={text}; planned: {_listed(planned)}; hidden: {_listed(hidden)}",
            allowed=f"GPUs of the cluster file: {_listed({gpu.card for gpu in node.gpus})}",
            way_out="unset CUDA_VISIBLE_DEVICES if all are yours, or exclude the hidden GPUs and solve again",
        )


def _visible_index(entry: str, node: NodeEntry) -> int | None:
    if entry.isascii() and entry.isdigit():
        return int(entry)
    found = {gpu.card for gpu in node.gpus if entry and gpu.uuid is not None and gpu.uuid.startswith(entry)}
    return found.pop() if len(found) == 1 else None


def _listed(indices: Iterable[int]) -> str:
    return ", ".join(str(index) for index in sorted(indices)) or "none"
