"""One layout of a role on a GPU class: its memory, its state, and options for every replica count."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import replace

from libra_plan.errors import RefusedError
from libra_plan.models.engine_memory import communication_mib
from libra_plan.models.offload import measured_offload, offloaded_cost, offloaded_state
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate
from libra_plan.models.sharing import on_seat, whole_class
from libra_plan.models.sleep import SleepCost, sleep_cost
from libra_plan.models.states import adapter_mib
from libra_plan.models.training_stage import StageCost
from libra_plan.planner.pricing.prices import Prices
from libra_plan.planner.pricing.stage import Stage
from libra_plan.planner.pricing.work import TaskWork
from libra_plan.planner.problem import StageOption
from libra_plan.profiles.schema import ProfileFile, RoleSpec

__all__ = ["ASSUMED_RESIDUAL_MIB", "Frame", "stretched"]

# What a process keeps on a GPU outside its allocator where a profile did not measure it: above the
# 770 to 870 MiB seen on H200. Options priced with it say so.
ASSUMED_RESIDUAL_MIB = 1024.0
_ADAPTERS = (
    "adapters take {mib:.0f} MiB beside the base model; what they compute is not in the measured times"
)


class Frame:
    """What the options of one layout share: memory given, static state, price of sleeping."""

    def __init__(
        self,
        stage: Stage,
        layout: Layout,
        gpu_class: str,
        prices: Prices,
        work: TaskWork,
        role: RoleSpec,
    ) -> None:
        self.stage, self.layout = stage, layout
        self.gpu_class, self.prices, self.work = gpu_class, prices, work
        outside = stage.profile.outside_allocator_mib
        self.residual = ASSUMED_RESIDUAL_MIB if outside is None else outside
        assumed = f"memory outside the allocator assumed {self.residual:.0f} MiB"
        notes = (assumed,) if outside is None else ()
        if layout not in stage.profile.layouts:
            self.residual += communication_mib(layout.tp)
        self.memory = prices.cluster.memory_mib(gpu_class)
        model, software = stage.profile.profile.model, stage.profile.profile.software
        self.adapters = 0.0 if role.lora is None else adapter_mib(model, role.lora.rank)
        if role.lora is not None and software.lora_rank is None:
            notes = (*notes, _ADAPTERS.format(mib=self.adapters))
        self.static = stage.profile.static_mib(layout, allow_prior=prices.allow_prior).high + self.adapters
        pinned = None
        if gpu_class in prices.switching:
            pinned = prices.switching[gpu_class].pinned_host_gib_per_s
        self.pinned, self.offload = pinned, _offload(stage.profile.profile, role.offload, prices.allow_prior)
        rate = pinned.typical if pinned is not None else stage.profile.profile.hardware.host_link_gib_per_s
        self.seat = gpu_class != whole_class(gpu_class)
        can_sleep = role.can_sleep and not self.seat  # its neighbour would take the link, too: not measured
        if self.seat:
            notes = (*notes, "on a seat of a shared GPU: priced beside a neighbour that always works")
        self.sleeps_at = rate if can_sleep else None
        self.sleep = self._sleep(self.static)
        if layout not in stage.profile.layouts:
            notes = (*notes, stage.profile.assumption(layout))
        self.notes = (*stage.notes, *notes)

    def _sleep(self, static_mib: float) -> SleepCost | None:
        rate = self.sleeps_at
        return sleep_cost(static_mib, self.residual, rate, rate) if rate else None

    @property
    def room_mib(self) -> float:
        """Give what the role may reserve on each GPU, MiB."""
        return self.memory - self.residual - self.adapters

    def pricer(self) -> Callable[[int], StageOption]:
        """Prepare what all replica counts share, and price them one by one."""
        price = self.stage.prepare(self.layout, self.room_mib, self.prices.allow_prior)
        return lambda replicas: self._option(price(replicas), replicas)

    def peak_mib(self, working: Estimate, static_mib: float | None = None) -> float:
        """Give what a GPU holds at most, MiB; refuse what does not fit on it."""
        peak = max(working.high + self.adapters, self.static if static_mib is None else static_mib)
        peak += self.residual
        if not math.isfinite(peak) or peak > self.memory:
            raise RefusedError(
                "the role does not fit on the GPU",
                got=f"{peak:.0f} MiB per GPU",
                allowed=f"{self.memory:.0f} MiB",
                way_out="smaller micro-batches, shorter sequences or a layout with more GPUs per replica",
            )
        return peak

    def _option(self, cost: StageCost, replicas: int) -> StageOption:
        static, sleep, notes, host = self.static, self.sleep, self.notes, 0.0
        if self.offload:
            profile = self.stage.profile.profile
            state = offloaded_state(profile, self.layout, replicas, self.offload)
            host = state.host_mib
            if self.offload != measured_offload(profile):
                cost = offloaded_cost(cost, state, self.pinned, profile.id)
                static = max(static - state.gpu_mib, 0.0)
                sleep = self._sleep(static)
                said = " and ".join(sorted(self.offload))
                notes = (*notes, f"{said} in host memory: assumed, no profile was measured so")
        time_s = stretched(cost.time_s, self.work.stretch)
        if self.seat:
            time_s = on_seat(time_s, self.prices.sharing(self.gpu_class))
        return StageOption(
            self.gpu_class,
            self.layout,
            replicas,
            time_s,
            self.peak_mib(cost.memory_mib, static),
            static + self.residual,
            self.residual,
            static,
            sleep.sleep_s if sleep else None,
            sleep.wake_s if sleep else None,
            (*cost.notes, *notes),
            None if cost.stream is None else cost.stream.scaled(time_s.value / cost.time_s.value),
            offloaded_host_mib=host,
        )


def _offload(profile: ProfileFile, asked: Collection[str], allow_prior: bool) -> frozenset[str]:
    """Settle what lies in host memory: what the role asks, or what the profile was measured with."""
    measured = measured_offload(profile)
    parts = frozenset(asked) or measured
    if parts != measured and (measured or not allow_prior):
        raise RefusedError(
            f"{profile.id} was not measured with {' and '.join(sorted(parts))} in host memory",
            got="offload: [" + ", ".join(sorted(parts)) + "]",
            allowed=" and ".join(sorted(measured)) or "no offload",
            way_out="measure it so, or leave out `offload`" + ("" if measured else ", or pass --allow-prior"),
        )
    return parts


def stretched(time_s: Estimate, stretch: tuple[float, float]) -> Estimate:
    """Widen a time by how much shorter or longer all lengths may be: it grows at most with their square."""
    shorter, longer = stretch
    return replace(time_s, low=time_s.low * shorter**2, high=time_s.high * longer**2)
