"""The choice among very many configurations: LP prices over all of them, HiGHS over those near the best.

The prices bound every choice (`lp_bound`). A configuration that loses more against them than the best
choice known is below that bound is part of no better choice, so few are left to choose from: first those
that lose next to nothing, in windows that grow, and at last all that could be part of a better choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from libra_plan.models.topology import Cluster
from libra_plan.planner.optimize.backends import MasterResult
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.constraints import At, Choice, Constraint
from libra_plan.planner.optimize.lp_bound import (
    INFEASIBLE,
    OPTIMAL,
    TOLERANCE,
    LpRelaxation,
    begin_with,
    highs_model,
    relax,
    run_highs,
)
from libra_plan.planner.optimize.lp_master import SAFETY, Floats, Ints, Master, duals_of, largest, master_of
from libra_plan.planner.optimize.objective import PricedTask, TaskCandidates
from libra_plan.planner.optimize.priced_master import master_of_priced

__all__ = [
    "Effort",
    "Restriction",
    "Selection",
    "no_report",
    "restrict",
    "select",
    "solve_restricted",
]

_WINDOWS = (0.25, 1.0, 4.0)  # times the gap wanted: what configurations of a first choice may lose
_LEAST_GAP = 1e-4  # what the windows are reckoned from, where no gap is wanted
_PART = 0.4  # of the time left, for a choice among few
_FEASIBLE = 2  # highspy.SolutionStatus.kSolutionStatusFeasible, as a number in HighsInfo
_NEAR = 12  # configurations kept per task beside the chosen one
_TRIED = 64  # configurations of a task that rounding looks at
_NODES_PER_S = 200  # nodes of branch and bound that count as a deterministic second
_WHOLE = 1.0 - 1e-6
_HALF = 0.5


def no_report(objective: float | None, bound: float | None) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class Effort:
    """How hard to try: until the relative gap, for so many seconds, unless somebody stops it.

    `deterministic` seconds count nodes of branch and bound instead of time. `report` receives objective and
    bound.
    """

    gap: float
    limit_s: float = math.inf
    seed: int = 0
    deterministic: bool = False
    stopped: Callable[[], bool] = lambda: False
    report: Callable[[float | None, float | None], None] = no_report


@dataclass(frozen=True)
class Selection:
    """The best configurations found (None: none yet), their value, and the bound on every choice.

    `bound` is lower than that of the relaxation where branch and bound has proven more. `spent_s` counts
    deterministic seconds where those were asked for.
    """

    chosen: Ints | None
    value: float
    bound: float
    relaxation: LpRelaxation
    infeasible: bool = False
    spent_s: float = 0.0


def select(
    master: Master,
    effort: Effort,
    start: Ints | None = None,
    *,
    relaxation: LpRelaxation | None = None,
    any_will_do: bool = False,
) -> Selection:
    """Choose at most one configuration of each task, of the largest total value.

    `start` is a choice known before. With `any_will_do` the first choice that keeps the constraints is
    enough.
    """
    if relaxation is None:
        seconds = math.inf if effort.deterministic else effort.limit_s
        relaxation = relax(master, seconds, effort.seed, effort.stopped)
    search = _Search(master, effort, relaxation)
    if start is not None:
        search.take(start)
    return search.result(infeasible=search.choose(any_will_do=any_will_do))


class _Search:
    """The state of one search."""

    def __init__(self, master: Master, effort: Effort, relaxation: LpRelaxation) -> None:
        self.master, self.effort = master, effort
        self.relaxation = relaxation
        self.left_s = effort.limit_s
        self.chosen: Ints | None = None
        self.value = -math.inf
        self.bound = math.inf

    def result(self, *, infeasible: bool) -> Selection:
        """Return the best choice and bound so far."""
        bound = max(self.value, self.bound)
        spent_s = self.effort.limit_s - self.left_s if self.effort.deterministic else 0.0
        return Selection(self.chosen, self.value, bound, self.relaxation, infeasible, spent_s)

    @property
    def wanted(self) -> float:
        """Return the gap that is wanted, as a value."""
        scale = abs(self.bound) if math.isfinite(self.bound) else 1.0
        rounding = 4 * SAFETY * max(1.0, scale, largest(self.master.value))
        return max(self.effort.gap * scale, rounding)

    @property
    def near(self) -> bool:
        """Whether the best choice is as near to the bound as wanted."""
        return self.bound - self.value <= self.wanted

    @property
    def ended(self) -> bool:
        """Whether the search is to end."""
        return self.near or self.left_s <= 0.0 or self.effort.stopped()

    def choose(self, *, any_will_do: bool) -> bool:
        """Search; return True when it is proven that nothing can be chosen."""
        if self.relaxation.infeasible:
            return self.chosen is None  # otherwise only tolerances are violated
        self.bound = self.relaxation.bound
        self.effort.report(None, self.bound)
        if self.near:
            return False
        self.loss = self.master.loss(self.relaxation.prices)
        self.take(_rounded(self.master, self.relaxation.fraction, self.loss))
        unit = max(self.effort.gap, _LEAST_GAP) * max(abs(self.bound), TOLERANCE)
        before = 0
        for window in (*(share * unit for share in _WINDOWS), math.inf):
            if self.ended or (any_will_do and self.chosen is not None):
                return False
            last = math.isinf(window)
            offered = self._offered(min(window, self.bound - self.value))
            if not last and len(offered) == before:
                continue
            before = len(offered)
            bound, complete = self._branch(offered, self.left_s * (1.0 if last else _PART), any_will_do)
            if last and complete and self.chosen is None:
                return True
            if last:
                self.bound = min(self.bound, max(self.value, bound))
        return False

    def _offered(self, window: float) -> Ints:
        """List the configurations that lose no more than a window, those of the LP, and those chosen."""
        offered = np.flatnonzero((self.loss <= window) | (self.relaxation.fraction > TOLERANCE))
        return offered if self.chosen is None else np.union1d(offered, self.chosen)

    def _seconds(self, limit_s: float) -> float:
        return math.inf if self.effort.deterministic else limit_s

    def _branch(self, offered: Ints, limit_s: float, any_will_do: bool) -> tuple[float, bool]:
        """Choose among some configurations with HiGHS; return its bound over them, and whether it ended."""
        unit = largest(self.master.value)
        model = highs_model(self.master, offered, self.effort.seed, integer=True)
        model.setOptionValue("mip_rel_gap", _HALF * self.effort.gap)
        model.setOptionValue("mip_abs_gap", TOLERANCE)
        if any_will_do:
            model.setOptionValue("mip_max_improving_sols", 1)
        if self.effort.deterministic and math.isfinite(limit_s):
            model.setOptionValue("mip_max_nodes", max(1, int(_NODES_PER_S * limit_s)))
        if self.chosen is not None:
            begin_with(model, np.isin(offered, self.chosen).astype(np.float64))
        enough = (self.bound - _HALF * self.wanted) / unit
        model.cbMipInterrupt.subscribe(
            lambda event: (
                event.interrupt()
                if self.effort.stopped() or event.data_out.mip_primal_bound >= enough
                else None
            )
        )
        seconds = run_highs(model, self._seconds(limit_s))
        info = model.getInfo()
        self.left_s -= info.mip_node_count / _NODES_PER_S if self.effort.deterministic else seconds
        if info.primal_solution_status == _FEASIBLE:
            self.take(offered[np.asarray(model.getSolution().col_value) > _HALF])
        bound = float(info.mip_dual_bound)
        bound = (bound + TOLERANCE * max(1.0, abs(bound))) * unit if math.isfinite(bound) else math.inf
        return bound, model.getModelStatus() in (OPTIMAL, *INFEASIBLE)

    def take(self, numbers: Ints) -> None:
        """Take a choice if it is the best so far and keeps every constraint, as added up here."""
        value = float(self.master.value[numbers].sum())
        if value > self.value and self.master.keeps(numbers):
            self.chosen, self.value = numbers, value
            self.effort.report(value, None)


def _rounded(master: Master, fraction: Floats, loss: Floats) -> Ints:
    """Keep what the LP chose whole, and give every other task the configuration that loses least and fits.

    Constraints that demand something (a limit below 0) are left to chance: whoever takes the choice checks
    all of them.
    """
    chosen = np.flatnonzero(fraction > _WHOLE).tolist()
    room = np.where(master.limit >= 0, master.limit + master.tolerance, np.inf)
    room = room - master.taken(np.array(chosen, dtype=np.int64))
    tasks = np.arange(len(master.first) - 1)
    for t in np.setdiff1d(tasks, master.task[chosen]).tolist():
        begin, end = int(master.first[t]), int(master.first[t + 1])
        order = np.argsort(loss[begin:end], kind="stable")[:_TRIED]
        takes = master.demand(begin, end)[order]
        fits = np.flatnonzero((takes <= room).all(axis=1))
        if len(fits):
            chosen.append(begin + int(order[fits[0]]))
            room = room - takes[fits[0]]
    return np.array(sorted(chosen), dtype=np.int64)


# ---------------------------------------------------------------- for the master's tasks and constraints


def solve_restricted(
    tasks: Sequence[TaskCandidates],
    constraints: Sequence[Constraint],
    values: Mapping[At, float],
    params: SolveParams,
    *,
    limit_s: float,
    hint: Choice | None = None,
    known_bound: float | None = None,
    reported: bool = False,
) -> MasterResult:
    """Choose candidates of the largest total value within the constraints, as `backends.maximise` says."""
    master = master_of(tasks, constraints, values)
    if not values:  # any choice is as good as another, and small candidates are found sooner
        master = replace(master, value=-_used(master))
    report = params.interrupter.report if params.interrupter is not None and reported else no_report
    effort = Effort(params.gap, limit_s, params.seed, params.deterministic, lambda: params.stopped, report)
    found = select(master, effort, master.number(hint) if hint else None, any_will_do=not values)
    if params.work is not None:
        params.work.done_s += found.spent_s
    if found.infeasible:
        return MasterResult(None, -math.inf, optimal=True, infeasible=True)
    if not values:
        choice = None if found.chosen is None else master.choice(found.chosen)
        return MasterResult(choice, 0.0 if choice is not None else math.inf, optimal=choice is not None)
    bound = max(found.value, min(found.bound, math.inf if known_bound is None else known_bound))
    if found.chosen is None:
        return MasterResult(None, bound, optimal=False)
    rounding = 4 * SAFETY * max(1.0, abs(bound), largest(master.value))
    near = bound - found.value <= params.gap * max(1e-9, abs(found.value)) + rounding
    return MasterResult(master.choice(found.chosen), bound, optimal=near)


def _used(master: Master) -> Floats:
    """Return how much of all constraints each candidate uses, each as a part of its limit."""
    gives_room = master.limit[master.row] > 0
    part = np.where(
        gives_room, np.maximum(master.amount, 0.0) / np.maximum(master.limit[master.row], 1e-9), 0.0
    )
    return np.bincount(master.column, part, minlength=len(master.value)).astype(np.float64)


# ---------------------------------------------------------------- over all configurations of priced tasks


@dataclass(frozen=True, slots=True)
class Restriction:
    """The configurations of each task worth looking at, the chosen one first, and the proof over all of them.

    `numbers` are those of `PricedTask.candidates`; `duals` prove `lp_bound`, and `bound` may be lower.
    `stays`: the choice is the running plan, which is near enough to the bound.
    """

    numbers: tuple[tuple[int, ...], ...]
    chosen: frozenset[int]
    bound: float
    lp_bound: float
    duals: dict[str, float]
    stays: bool

    @property
    def choice(self) -> Choice:
        """Return the choice, by the candidates that are built of `numbers`."""
        return dict.fromkeys(sorted(self.chosen), 0)


def restrict(
    priced: Sequence[PricedTask],
    cluster: Cluster,
    effort: Effort,
    *,
    kept_gap: float | None = None,
    only_running: bool = False,
) -> Restriction | None:
    """Choose over all configurations, and keep those of each task that are best at the LP's prices.

    The running plan is the first choice. With a `kept_gap` it stays where it is within that, or within the
    gap, of the bound; with `only_running` there is no other answer.
    """
    master = master_of_priced(priced, cluster)
    running = None if any(each.running and not each.held for each in priced) else _running(priced, master)
    if only_running and running is None:
        return None
    relaxation = relax(master, effort.limit_s, effort.seed, effort.stopped)
    if running is not None and kept_gap is not None and master.keeps(running):
        value = float(master.value[running].sum())
        near = max(effort.gap, kept_gap) * max(abs(value), TOLERANCE)
        if relaxation.bound - value <= near:
            return _restriction(master, priced, running, relaxation, relaxation.bound, stays=True)
    if only_running:
        return None
    found = select(master, effort, running, relaxation=relaxation)
    chosen = np.zeros(0, dtype=np.int64) if found.chosen is None else found.chosen
    return _restriction(master, priced, chosen, relaxation, found.bound, stays=False)


def _running(priced: Sequence[PricedTask], master: Master) -> Ints | None:
    """Return the best placement that every running task may keep; None when nothing runs."""
    found = []
    for t, each in enumerate(priced):
        if each.held and len(each):
            begin, end = int(master.first[t]) + len(each.table), int(master.first[t + 1])
            found.append(begin + int(np.argmax(master.value[begin:end])))
    return np.array(found, dtype=np.int64) if found else None


def _restriction(
    master: Master,
    priced: Sequence[PricedTask],
    chosen: Ints,
    relaxation: LpRelaxation,
    bound: float,
    *,
    stays: bool,
) -> Restriction:
    loss = master.loss(relaxation.prices)
    choice = master.choice(chosen)
    numbers = tuple(
        _near(each, loss[master.first[t] : master.first[t + 1]], choice.get(t))
        for t, each in enumerate(priced)
    )
    return Restriction(
        numbers, frozenset(choice), bound, relaxation.bound, duals_of(master, relaxation.prices), stays
    )


def _near(each: PricedTask, loss: Floats, chosen: int | None) -> tuple[int, ...]:
    """List the chosen configuration, the smallest, the same size as kept GPUs, and those that lose least."""
    if not len(loss):
        return ()
    most = min(_NEAR, len(loss))
    near = np.argpartition(loss, most - 1)[:most]
    near = near[np.argsort(loss[near], kind="stable")]
    moved = each.table.gpus
    first = [chosen] if chosen is not None else []
    first += [int(np.argmin(moved))] if len(moved) else []
    for entry in each.held:  # it may have to leave its GPUs to others
        counts = {block[:2]: block[2] for block in entry.configuration.blocks}
        wanted = [counts.get(kind, 0) for kind in each.table.kinds]
        same = np.flatnonzero((each.table.counts == wanted).all(axis=1))
        first += same[:1].tolist()
    return tuple(dict.fromkeys([*first, *near.tolist()]))
