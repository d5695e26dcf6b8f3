"""Options of a stage: one way to run a role with its time and memory, and how pools overlap."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum

from libra_plan.models.parallelism import Layout, RangedReplica
from libra_plan.models.quantities import Estimate
from libra_plan.models.rollout.streaming import Stream

__all__ = ["Coupling", "CouplingKind", "StageOption"]


class CouplingKind(str, Enum):
    """How the pools of one phase run against each other (design: vocabulary, `coupling`)."""

    SYNC = "sync"
    ASYNC = "async"
    PIPELINED = "pipelined"


@dataclass(frozen=True, slots=True)
class Coupling:
    """How pools overlap: `sync` adds times, `async` takes the largest, `pipelined` in between.

    `groups` is the number of micro-groups a pipelined step is cut into: with pool times t_i the
    phase takes Σt_i/groups + (1 − 1/groups)·max t_i. `staleness` η is the bound async runs under,
    in policy versions; it must be ≥ 1 for async and 0 for sync: no more than (1 + η) steps' worth of
    trajectories may have begun and not yet been trained on. `batches`: async rollouts generate a step's
    trajectories as one batch, and do not begin the next before it is done.
    """

    kind: CouplingKind
    staleness: int = 0
    groups: int | None = None
    batches: bool = False

    @property
    def streams(self) -> bool:
        """Whether its rollouts never drain."""
        return self.kind is CouplingKind.ASYNC and not self.batches


@dataclass(frozen=True, slots=True)
class StageOption:
    """One way to run one role: layout and replicas on a GPU class, with its price.

    `time_s`: seconds for the role's work of one step. Memory is per GPU, MiB: `peak_mib` while the
    role works (upper bound), `static_mib` of it that stays when it pauses with its state resident,
    `asleep_mib` what remains when its state is put to host memory. `host_static_mib` per GPU is
    what that state then takes there. `sleep_s` and `wake_s` are the seconds to put it to sleep and
    to wake it, None when the role cannot sleep. `offloaded_host_mib` per GPU is on the host always, asleep
    or at work: state offloaded there. `stream`: what an async
    rollout that never drains is made of; its price holds only where the role keeps its GPUs all the time, not
    where it shares them in turns.

    A rollout that serves trajectories by the rank of their length has `mix`: the layout of every
    replica and the ranks it serves. `layout` is then the largest of them, `replicas` their number.
    """

    gpu_class: str
    layout: Layout
    replicas: int
    time_s: Estimate
    peak_mib: float
    static_mib: float
    asleep_mib: float
    host_static_mib: float
    sleep_s: float | None
    wake_s: float | None
    notes: tuple[str, ...] = ()
    stream: Stream | None = None
    mix: tuple[RangedReplica, ...] = ()
    offloaded_host_mib: float = 0.0

    @property
    def gpus(self) -> int:
        """Count the GPUs it takes."""
        if not self.mix:
            return self.layout.gpus_per_replica * self.replicas
        return sum(each.layout.gpus_per_replica for each in self.mix)

    @property
    def switch_s(self) -> float:
        """The seconds to fall asleep and wake up once; 0 where that cannot be."""
        return (self.sleep_s or 0.0) + (self.wake_s or 0.0)

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """List the layout of every replica."""
        return tuple(each.layout for each in self.mix) or (self.layout,) * self.replicas

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """Count replicas by their GPUs: (GPUs, replicas), largest first."""
        if not self.mix:
            return ((self.layout.gpus_per_replica, self.replicas),)
        found = Counter(layout.gpus_per_replica for layout in self.layouts)
        return tuple(sorted(found.items(), reverse=True))

    @property
    def form(self) -> str:
        """How many replicas of which layouts it has: `2 × tp4`, or `1 × tp4 + 6 × tp1`."""
        return " + ".join(f"{number} × {layout}" for layout, number in Counter(self.layouts).items())
