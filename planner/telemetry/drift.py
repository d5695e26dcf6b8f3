"""Compare observed times with the profiles that predicted them.

A window with steps, batch and length is compared with the role's profile at that place; one with
steps alone (a trainer's log) with the stage time of the plan. Only places inside what was measured
count: elsewhere the model's own error is not that of the run.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from libra_plan.errors import InputError, RefusedError
from libra_plan.models.corrections import (
    INSIDE,
    Correction,
    CorrectionsFile,
    RoleCorrection,
    with_observation,
)
from libra_plan.models.fit import FittedProfile
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate
from libra_plan.models.query import Query
from libra_plan.planner.telemetry.work_windows import ClockAxis, WorkWindow
from libra_plan.profiles.catalog import LoadedProfile
from libra_plan.profiles.schema import RoleSpec, TaskSpec

__all__ = ["PlannedStage", "RoleDrift", "drifts"]

_TRAINING = ("actor_train", "critic_train", "reward_train")


@dataclass(frozen=True)
class RoleDrift:
    """A role's correction, how many new windows it rests on, and why others were left out."""

    correction: RoleCorrection
    taken: int
    left_out: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A role's stage time in the plan, without corrections, with its layout and generation."""

    time_s: Estimate
    layout: Layout
    generation: int | None = None


def drifts(
    tasks: Iterable[TaskSpec],
    profiles: Mapping[str, LoadedProfile],
    fit: Callable[[LoadedProfile], FittedProfile],
    windows: Iterable[WorkWindow],
    *,
    before: CorrectionsFile | None = None,
    stage_times: Mapping[tuple[str, str], PlannedStage] | None = None,
    gpu_class: str | None = None,
) -> Iterator[RoleDrift]:
    """Compare windows with predictions, role by role in the order of the workload.

    Ranks of a role take their steps together, so only the lowest data-parallel rank counts. Corrections
    `before` are continued: windows they have seen are left out. `stage_times` are those of the plan,
    without corrections.
    """
    specs = {(task.id, role.id): role for task in tasks for role in task.roles}
    axis = ClockAxis()
    found: dict[tuple[str, str], list[tuple[float, WorkWindow]]] = {key: [] for key in specs}
    for window in windows:
        key = _key(window, specs)
        if key is not None:
            _keep_lowest(found[key], axis.end_s(window), window)
    for (task, name), kept in found.items():
        if kept:
            known = None if before is None else before.by_role.get((task, name))
            planned = (stage_times or {}).get((task, name))
            models = _Models(specs[task, name], profiles, fit, gpu_class)
            yield _drift(task, name, kept, known, planned, models)


def _keep_lowest(kept: list[tuple[float, WorkWindow]], end_s: float, window: WorkWindow) -> None:
    """Keep a window unless a lower rank is known; the first of a lower rank drops the others."""
    if kept and window.dp_rank < kept[0][1].dp_rank:
        kept.clear()
    if not kept or window.dp_rank == kept[0][1].dp_rank:
        kept.append((end_s, window))


def _key(window: WorkWindow, specs: Mapping[tuple[str, str], RoleSpec]) -> tuple[str, str] | None:
    """Return whose window it is; one that names no task belongs to the only role of its name."""
    if window.task:
        key = (window.task, window.role)
        return key if key in specs else None
    alike = [key for key in specs if key[1] == window.role]
    if len(alike) > 1:
        raise InputError(
            "the recording names no task, and several have such a role",
            got=window.role,
            allowed=", ".join(task for task, _ in alike),
            way_out="name the task as task (--task)",
        )
    return alike[0] if alike else None


class _Models:
    """The profiles of a role by layout and batch: which one a window is compared with."""

    def __init__(
        self,
        spec: RoleSpec,
        profiles: Mapping[str, LoadedProfile],
        fit: Callable[[LoadedProfile], FittedProfile],
        gpu_class: str | None,
    ) -> None:
        phase = "train" if spec.kind in _TRAINING else "decode" if spec.kind == "rollout" else "score"
        fits = [
            profiles[name]
            for name in spec.profiles
            if name in profiles and profiles[name].file.phase == phase
            if gpu_class in (None, profiles[name].file.hardware.gpu_class)
        ]
        classes = sorted({each.file.hardware.gpu_class for each in fits})
        if len(classes) > 1:
            raise InputError(
                f"role {spec.id} has profiles of several GPU classes",
                got=", ".join(classes),
                way_out="name the one it ran on as gpu_class (--gpu-class)",
            )
        self.phase, self.fitted = phase, [fit(each) for each in fits]

    def predict(self, window: WorkWindow) -> tuple[FittedProfile, Estimate]:
        """Predict the seconds of a step, or raise a RefusedError with the reason why not."""
        if not self.fitted:
            raise RefusedError(f"the role names no {self.phase} profile")
        refusals = []
        for fitted in self.fitted:
            try:
                estimate = fitted.time_s(_query(window))
            except RefusedError as refusal:
                refusals.append(refusal)
                continue
            if estimate.origin in INSIDE:
                return fitted, estimate
            refusals.append(RefusedError(f"outside what was measured: {estimate.origin.value}"))
        raise refusals[0]


def _query(window: WorkWindow) -> Query:
    layout = Layout.of(window)
    return Query(window.batch_sequences or 0.0, window.seq_len_tokens, layout=layout, dp=window.dp)


def _steps(window: WorkWindow, phase: str) -> float | None:
    """Return the steps of a window; a decoding step writes one token per sequence."""
    if window.steps:
        return window.steps
    if phase == "decode" and window.tokens and window.batch_sequences:
        return window.tokens / window.batch_sequences
    return None


@dataclass(frozen=True, slots=True)
class _Seen:
    """One comparison: the profile of the prediction (None: the plan's), the layout, and both times."""

    fitted: FittedProfile | None
    layout: Layout
    observed_s: float
    predicted_s: float

    def begins(self, task: str, role: str) -> RoleCorrection:
        """Return the correction that starts with this comparison."""
        file = None if self.fitted is None else self.fitted.profile
        return RoleCorrection(
            task=task,
            role=role,
            basis="stage" if file is None else "step",
            profile=None if file is None else file.id,
            gpu_class=None if file is None else file.hardware.gpu_class,
            tp=self.layout.tp,
            pp=self.layout.pp,
            cp=self.layout.cp,
            ep=self.layout.ep,
        )


def _drift(
    task: str,
    name: str,
    windows: list[tuple[float, WorkWindow]],
    known: RoleCorrection | None,
    planned: PlannedStage | None,
    models: _Models,
) -> RoleDrift:
    """Follow the windows in order; another profile, layout or basis than before starts from scratch."""
    left_out: Tally[str] = Tally()
    taken, kept = 0, known
    for end_s, window in sorted(windows, key=lambda each: each[0]):
        if known is not None and end_s <= known.until_s:
            left_out["taken in before"] += 1
            continue
        try:
            seen = _compared(window, planned, models)
            fresh = seen.begins(task, name)
            same = kept is not None and replace(kept, until_s=0.0, state=Correction()) == fresh
            state = kept.state if kept is not None and same else Correction()
            state = with_observation(state, seen.observed_s, seen.predicted_s)
        except RefusedError as refusal:
            left_out[refusal.what] += 1
            continue
        kept = replace(fresh, until_s=end_s, state=state)
        taken += 1
    empty = RoleCorrection(task=task, role=name, basis="step")
    return RoleDrift(kept or empty, taken, tuple(left_out.most_common()))


def _compared(window: WorkWindow, planned: PlannedStage | None, models: _Models) -> _Seen:
    """Compare a window with the profile, or with the plan where batch and length are unknown."""
    steps = _steps(window, models.phase)
    if not steps:
        raise RefusedError("no step was done in the window")
    if window.working_s <= 0:
        raise RefusedError("the rank waited all the window")
    observed_s = window.working_s / steps
    if window.batch_sequences and window.seq_len_tokens:
        fitted, predicted = models.predict(window)
        return _Seen(fitted, _query(window).layout, observed_s, predicted.value)
    if planned is None:
        raise RefusedError("batch and length are not recorded, and no plan was given")
    if None not in (window.generation, planned.generation) and window.generation != planned.generation:
        raise RefusedError(f"it is of generation {window.generation} of the task, not {planned.generation}")
    if planned.time_s.origin not in INSIDE:
        raise RefusedError(f"the plan's stage time is {planned.time_s.origin.value}")
    return _Seen(None, planned.layout, observed_s, planned.time_s.value)
