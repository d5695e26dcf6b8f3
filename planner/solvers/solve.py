"""`solve(problem, params)`: from a frozen problem to a placed plan with its proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from libra_plan.planner.plan import Certificate, PlacedRole, Plan, QueuedTask, RunningTask, Status
from libra_plan.planner.problem import Policy, Problem
from libra_plan.planner.solvers.backends import maximise
from libra_plan.planner.solvers.base import SolveParams, SolveResult, Termination, TerminationReason
from libra_plan.planner.solvers.baselines import equal_split, fits_rows, greedy, keep_running
from libra_plan.planner.solvers.colgen.search import Limits
from libra_plan.planner.solvers.focus import Focus, focus
from libra_plan.planner.solvers.master import Budget, Placed, Search
from libra_plan.planner.solvers.moves import move_values
from libra_plan.planner.solvers.policies import Outcome, max_min, normalised, throughput
from libra_plan.planner.solvers.queued import queued_tasks
from libra_plan.planner.solvers.rows import Choice, master_rows, no_good_row, worth_row
from libra_plan.planner.solvers.worth import TaskCandidates, priced_tasks

__all__ = ["solve"]

_MANY = 2_000  # columns; up to here CP-SAT over all of them proves more, sooner
_NO_LIMIT_S = 1e6  # a deterministic solve ends by its gap, not by the clock


def solve(
    problem: Problem,
    params: SolveParams = SolveParams(),
    hint: Plan | None = None,
    *,
    shares_of: Problem | None = None,
    other_than: Plan | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> SolveResult:
    """Find the best plan, or the best within the limit, and say how far from the bound it is.

    The incumbent is never worse than the equal split, the greedy split and, when there is one,
    the running plan. Solving touches nothing; a time-out with an incumbent is a plan. `shares_of`
    measures throughput against the fair shares of another problem, so that the two objectives can
    be compared. With `other_than` the best plan is sought that is not this one.
    """
    budget = Budget.of(params.time_limit_s, clock)
    tasks, focused = _candidates(problem, shares_of or problem, params, budget)
    if not any(each.candidates for each in tasks):
        reasons = _reasons(problem, tasks)
        return SolveResult(None, Termination(TerminationReason.INFEASIBLE, reasons or "no task was given"))
    forbidden = _hinted(tasks, other_than)
    not_that = [] if forbidden is None else [no_good_row(tasks, forbidden)]
    rows = [*master_rows(tasks, problem.cluster), *not_that]
    search = Search(problem, tasks, rows, params, budget, focused)
    baselines = {name: each for name, each in _baselines(search).items() if fits_rows(not_that, each.choice)}
    start = _best(search, list(baselines.values()))
    first = _hinted(tasks, hint) or (start.choice if start else None)
    if focused is not None:
        first = dict.fromkeys(focused.chosen, 0)  # its choice is each task's first candidate
    ask = max_min if problem.policy is Policy.MAX_MIN else throughput
    outcome = ask(search, first)
    placed = _best(search, [each for each in (outcome.placed, start) if each is not None])
    if placed is None or not placed.choice:
        return _nothing(problem, tasks, outcome)
    placed = _fewest_moves(search, params, placed, outcome)
    plan = _plan(search, placed, outcome, baselines)
    reason = TerminationReason(plan.certificate.status.value)
    return SolveResult(plan, Termination(reason, f"gap {plan.certificate.gap:.2e}", plan.certificate.bound))


def _candidates(
    problem: Problem, shares_of: Problem, params: SolveParams, budget: Budget
) -> tuple[list[TaskCandidates], Focus | None]:
    """Build all candidates, or those near the best choice when there are very many."""
    priced = priced_tasks(problem, shares_of)
    if problem.policy is not Policy.THROUGHPUT or sum(map(len, priced)) <= _MANY:
        return [each.candidates() for each in priced], None
    limit_s = _NO_LIMIT_S if params.deterministic else budget.left_s / 2
    limits = Limits(time_limit_s=limit_s, gap=params.gap / 2, seed=params.seed)
    focused = focus(priced, problem.cluster, limits, clock=budget.clock)
    return [each.candidates(numbers) for each, numbers in zip(priced, focused.numbers, strict=True)], focused


def _reasons(problem: Problem, tasks: Sequence[TaskCandidates]) -> str:
    waiting = queued_tasks(problem, tasks, {}, None)
    return "; ".join(f"[{each.code}] {each.reason}" for each in waiting)


def _nothing(problem: Problem, tasks: Sequence[TaskCandidates], outcome: Outcome) -> SolveResult:
    reasons = _reasons(problem, tasks)
    bound = min(outcome.bounds.values(), default=None)
    if outcome.placed is not None or outcome.infeasible or bound == 0.0:
        return SolveResult(None, Termination(TerminationReason.INFEASIBLE, reasons, bound))
    return SolveResult(None, Termination(TerminationReason.TIME_LIMIT, "no choice could be placed", bound))


def _baselines(search: Search) -> dict[str, Placed]:
    """Place the splits made by hand; those that cannot be placed are no rivals."""
    choices = {
        "equal-split": equal_split(search.tasks, search.rows, search.problem.cluster),
        "greedy": greedy(search.tasks, search.rows),
    }
    if search.problem.running:
        choices["running"] = keep_running(search.tasks)
    placed = {name: search.place(choice) for name, choice in choices.items()}
    return {name: each for name, each in placed.items() if each is not None}


def _objective(search: Search, choice: Choice) -> float:
    if search.problem.policy is Policy.MAX_MIN:
        return normalised(search, choice)[0]
    return _worth(search, choice)


def _worth(search: Search, choice: Choice) -> float:
    return sum(search.tasks[t].candidates[c].worth for t, c in choice.items())


def _best(search: Search, rivals: Sequence[Placed]) -> Placed | None:
    """Pick the best of several placed choices; the first of equals."""

    def rank(placed: Placed) -> tuple[float, ...]:
        if search.problem.policy is Policy.THROUGHPUT:
            return (_worth(search, placed.choice),)
        levels = normalised(search, placed.choice)
        return (*(round(level, 9) for level in levels), _worth(search, placed.choice))

    return max(rivals, key=rank, default=None)


def _hinted(tasks: Sequence[TaskCandidates], hint: Plan | None) -> Choice | None:
    """Translate a plan into candidate numbers; a hint must be complete to be of use."""
    if hint is None:
        return None
    numbers = {each.task.id: t for t, each in enumerate(tasks)}
    choice: Choice = {}
    for running in hint.running:
        t = numbers.get(running.task)
        if t is None:
            return None
        for c, entry in enumerate(tasks[t].candidates):
            if entry.column.phases == running.column.phases:
                choice[t] = c
                break
        else:
            return None
    return choice


def _fewest_moves(search: Search, params: SolveParams, placed: Placed, outcome: Outcome) -> Placed:
    """Among plans as good as the one found, take the one that moves least."""
    if not search.problem.running:
        return placed
    worth = _worth(search, placed.choice)
    slack = params.move_tolerance * max(1.0, abs(worth))
    rows = (*outcome.promises, worth_row(search.tasks, worth - slack))
    _, calmer = search.until_placed(
        lambda: maximise(
            search.tasks,
            [*search.rows, *rows],
            move_values(search.tasks),
            replace(params, gap=0.0),
            limit_s=search.step_s(),
            hint=placed.choice,
        )
    )
    if calmer is None or _objective(search, calmer.choice) < _objective(search, placed.choice) - slack:
        return placed
    return calmer


def _plan(search: Search, placed: Placed, outcome: Outcome, baselines: dict[str, Placed]) -> Plan:
    running = []
    for t, each in enumerate(search.tasks):
        if t not in placed.choice:
            continue
        entry, where = each.candidates[placed.choice[t]], placed.placements[t]
        moved = entry.held is None and _moved(search.problem, each.task.id, where.roles)
        running.append(
            RunningTask(each.task.id, entry.column, where.roles, where.cpu, entry.normalised, moved)
        )
    queued: list[QueuedTask] = queued_tasks(search.problem, search.tasks, placed.choice, search)
    objective = _objective(search, placed.choice)
    bound = max(objective, min(outcome.bounds.values(), default=float("inf")))
    gap = (bound - objective) / max(abs(objective), 1e-9)
    certificate = Certificate(
        policy=search.problem.policy.value,
        status=Status.OPTIMAL if gap <= search.params.gap else Status.FEASIBLE,
        objective=objective,
        bound=bound,
        gap=gap,
        bounds=tuple(sorted(outcome.bounds.items())),
        baselines=tuple(sorted((name, _objective(search, each.choice)) for name, each in baselines.items())),
        columns=sum(len(each.candidates) for each in search.tasks),
        deterministic=search.params.deterministic and not search.params.stopped,
    )
    return Plan(tuple(running), tuple(queued), certificate)


def _moved(problem: Problem, task: str, roles: Sequence[PlacedRole]) -> bool:
    """Tell whether a running task is placed otherwise than it is now; it may come back by chance."""
    now = {role.role: role.placed for role in roles}
    held = next((held for held in problem.running if held.task == task), None)
    return held is not None and now != {role.role: role.placed for role in held.roles}
