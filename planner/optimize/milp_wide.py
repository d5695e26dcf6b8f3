"""The master over thousands of candidates: prices from the LP over all, a choice among those near, by HiGHS.

The LP's prices bound every choice (`wide`). What loses more against them than a good choice is below that
bound is part of no better one, so few candidates are left to choose from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import highspy
import numpy as np

from libra_plan.planner.optimize.backends import MasterResult
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.constraints import At, Choice, Row
from libra_plan.planner.optimize.lp_bound import Floats, Ints, Wide, rounded, wide_of
from libra_plan.planner.optimize.objective import TaskCandidates

__all__ = ["maximise"]

_WINDOWS = (0.5, 2.0, 8.0)  # times the gap wanted: what candidates of a first choice may lose
_LEAST_GAP = 1e-4  # what the windows are reckoned from, where no gap is wanted
_PART = 0.4  # of the time left, for a choice among few
_FEASIBLE = 2  # highspy.SolutionStatus.kSolutionStatusFeasible, as a number in HighsInfo
# whatever is chosen is bounded
_INFEASIBLE = (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
_TOLERANCE = 1e-9
_HALF = 0.5


def maximise(
    tasks: Sequence[TaskCandidates],
    rows: Sequence[Row],
    values: Mapping[At, float],
    params: SolveParams,
    *,
    limit_s: float,
    hint: Choice | None = None,
    known_bound: float | None = None,
    reported: bool = False,
) -> MasterResult:
    """Choose candidates of the largest total value within the rows, as `backends.maximise` says."""
    scale = max((abs(value) for value in values.values()), default=1.0) or 1.0
    wide = wide_of(tasks, rows, {at: value / scale for at, value in values.items()})
    if not values:
        wide = _sparing(wide)
    search = _Search(wide, params, limit_s, scale if reported else None)
    if hint:
        search.take(wide.number(hint))
    if not search.price():
        return MasterResult(None, -math.inf, optimal=True, infeasible=True)
    search.take(rounded(wide, search.fraction, search.loss))
    infeasible = search.choose(any_will_do=not values)
    if search.chosen is None:
        bound = -math.inf if infeasible else search.bound * scale if values else math.inf
        return MasterResult(None, bound, optimal=infeasible, infeasible=infeasible)
    choice = wide.choice(search.chosen)
    if not values:
        return MasterResult(choice, 0.0, optimal=True)
    bound = max(search.value, min(search.bound, math.inf if known_bound is None else known_bound / scale))
    return MasterResult(choice, bound * scale, optimal=bound - search.value <= search.wanted)


def _sparing(wide: Wide) -> Wide:
    """Let any choice do: the smaller candidates of one are found sooner than others."""
    used = np.asarray(wide.takes[np.flatnonzero(wide.limit > 0)].maximum(0.0).sum(axis=0))
    return replace(wide, value=-used.ravel().astype(np.float64))


@dataclass
class _Search:
    """One question: what is known of it so far. Values are parts of the largest, `scale`."""

    wide: Wide
    params: SolveParams
    left_s: float
    scale: float | None
    bound: float = math.inf
    chosen: Ints | None = None
    value: float = -math.inf

    @property
    def wanted(self) -> float:
        """Give the gap that is wanted, as a value."""
        return max(self.params.gap * abs(self.bound), 4 * _TOLERANCE * max(1.0, abs(self.bound)))

    @property
    def near_enough(self) -> bool:
        """Tell whether the best choice is as near to the bound as wanted."""
        return self.bound - self.value <= self.wanted

    @property
    def ended(self) -> bool:
        """Tell whether nothing more may be tried."""
        return self.params.stopped or self.left_s <= 0.0

    def price(self) -> bool:
        """Solve the LP for prices, a bound and fractions; False where not even it has an answer."""
        model = self._model(self.wide)
        self._run(model, self.left_s)
        if model.getModelStatus() in _INFEASIBLE and self.chosen is None:  # else it is a matter of tolerances
            return False
        solution = model.getSolution()
        known = model.getModelStatus() not in _INFEASIBLE and len(solution.row_dual) == len(self.wide.limit)
        prices = np.maximum(np.asarray(solution.row_dual), 0.0) if known else np.zeros(len(self.wide.limit))
        self.loss: Floats = -self.wide.reduced(prices)
        self.bound = self.wide.bound(prices)
        self.fraction = np.asarray(solution.col_value) if known else np.zeros(len(self.wide.value))
        self._report(None, self.bound)
        return True

    def choose(self, *, any_will_do: bool) -> bool:
        """Choose among few, then among all that a better choice may have; True when there is none."""
        unit = max(self.params.gap, _LEAST_GAP) * max(abs(self.bound), _TOLERANCE)
        before = 0
        for window in (*(share * unit for share in _WINDOWS), math.inf):
            if self.near_enough or self.ended or (any_will_do and self.chosen is not None):
                return False
            last = math.isinf(window)
            room = self.bound - self.value
            offered = np.flatnonzero((self.loss <= min(window, room)) | (self.fraction > _TOLERANCE))
            if self.chosen is not None:
                offered = np.union1d(offered, self.chosen)
            if not last and len(offered) == before:
                continue
            before = len(offered)
            bound, complete = self._ask(offered, self.left_s * (1.0 if last else _PART), any_will_do)
            if last:
                if complete and self.chosen is None:
                    return True
                self.bound = min(self.bound, max(self.value, bound))
        return False

    def _ask(self, offered: Ints, limit_s: float, any_will_do: bool) -> tuple[float, bool]:
        """Let HiGHS choose among some candidates: its bound over them, and whether it came to an end."""
        part = self.wide.part(offered)
        model = self._model(part)
        number = len(offered)
        model.changeColsIntegrality(
            number, np.arange(number, dtype=np.int32), np.full(number, highspy.HighsVarType.kInteger)
        )
        model.setOptionValue("mip_rel_gap", _HALF * self.params.gap)
        model.setOptionValue("mip_abs_gap", _TOLERANCE)
        if any_will_do:
            model.setOptionValue("mip_max_improving_sols", 1)
        if self.chosen is not None:
            solution = highspy.HighsSolution()
            solution.col_value = np.isin(offered, self.chosen).astype(float).tolist()
            model.setSolution(solution)
        enough = self.bound - _HALF * self.wanted
        model.cbMipInterrupt.subscribe(
            lambda event: (
                event.interrupt()
                if self.params.stopped or event.data_out.mip_primal_bound >= enough
                else None
            )
        )
        self._run(model, limit_s)
        info = model.getInfo()
        if info.primal_solution_status == _FEASIBLE:
            self.take(offered[np.asarray(model.getSolution().col_value) > _HALF])
        ended = (highspy.HighsModelStatus.kOptimal, *_INFEASIBLE)
        bound = float(info.mip_dual_bound)
        bound = bound + _TOLERANCE * max(1.0, abs(bound)) if math.isfinite(bound) else math.inf
        return bound, model.getModelStatus() in ended

    def take(self, numbers: Ints) -> None:
        """Take a choice if it is the best so far and keeps every row, as added up here."""
        value = float(self.wide.value[numbers].sum())
        if value > self.value and self.wide.keeps(numbers):
            self.chosen, self.value = numbers, value
            self._report(value, None)

    def _report(self, value: float | None, bound: float | None) -> None:
        if self.scale is not None and self.params.watch is not None:
            told = [None if each is None else each * self.scale for each in (value, bound)]
            self.params.watch.report(*told)

    def _model(self, wide: Wide) -> highspy.Highs:
        model = highspy.Highs()
        model.setOptionValue("output_flag", False)
        model.setOptionValue("threads", 1)
        model.setOptionValue("random_seed", self.params.seed)
        model.setOptionValue("primal_feasibility_tolerance", _TOLERANCE)
        model.setOptionValue("mip_feasibility_tolerance", _TOLERANCE)
        rows, number = wide.takes.shape
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = number, rows
        lp.sense_ = highspy.ObjSense.kMaximize
        lp.col_cost_ = wide.value
        lp.col_lower_, lp.col_upper_ = np.zeros(number), np.ones(number)
        lp.row_lower_, lp.row_upper_ = np.full(rows, -highspy.kHighsInf), wide.limit
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        takes = wide.takes
        lp.a_matrix_.start_, lp.a_matrix_.index_ = takes.indptr, takes.indices
        lp.a_matrix_.value_ = takes.data
        model.passModel(lp)
        return model

    def _run(self, model: highspy.Highs, limit_s: float) -> None:
        model.setOptionValue("time_limit", max(limit_s, 0.02))
        model.run()
        self.left_s -= float(model.getRunTime())
