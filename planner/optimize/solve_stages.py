"""One stage of a solve: some of the tasks, planned beside those that earlier stages have settled.

Nearly every policy has one stage with all tasks; `priority` has one a tier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from libra_plan.errors import WorkloadError
from libra_plan.planner.configurations.joint import JointTask
from libra_plan.planner.configurations.known import KnownConfigurations
from libra_plan.planner.optimize import backends
from libra_plan.planner.optimize.backends import maximise
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.baselines import equal_split, greedy, keep_running, keeps_all
from libra_plan.planner.optimize.constraints import (
    At,
    Choice,
    Constraint,
    base_constraints,
    budget_constraint,
    no_good,
    no_host_room,
    run_in,
    value_floor,
)
from libra_plan.planner.optimize.master import Budget, Placed, Search
from libra_plan.planner.optimize.objective import PricedTask, TaskCandidates, plan_value, priced_tasks
from libra_plan.planner.optimize.policies.base import PlanPolicy, PolicyResult
from libra_plan.planner.optimize.restricted_master import Effort, Restriction, no_report, restrict
from libra_plan.planner.optimize.unscheduled import queued_tasks
from libra_plan.planner.plan import Plan, QueuedTask
from libra_plan.planner.problem import Policy, Problem

__all__ = ["SolveStage", "StageRequest", "solve_stage"]

_MOST_JOINT = (
    20_000  # configurations, of which some are of several tasks; configuration generation knows none of those
)
_AS_GOOD_S = 1.0  # for a plan as good that moves less, where candidates are many
_MOST_COMPARED = 1_000  # tasks up to which a plan is compared with the baselines
_STEPS = 10_000  # moved state is counted in this many parts of all that could be moved


@dataclass(frozen=True, slots=True)
class StageRequest:
    """The task of a stage: plan the tasks of `part` within a budget of time."""

    problem: Problem
    shares_of: Problem
    part: frozenset[str]
    params: SolveParams
    budget: Budget
    hint: Plan | None
    other_than: Plan | None
    known: KnownConfigurations


@dataclass(frozen=True, slots=True)
class SolveStage:
    """A stage that is done. The first `settled` tasks of its search are those of earlier stages."""

    search: Search
    settled: int
    placed: Placed | None
    outcome: PolicyResult | None
    baselines: dict[str, Placed]
    queued: list[QueuedTask]

    @property
    def own(self) -> Sequence[TaskCandidates]:
        """List the tasks this stage planned."""
        return self.search.tasks[self.settled :]

    @property
    def choice(self) -> Choice:
        """Return the choice so far, including earlier stages' tasks."""
        return self.placed.choice if self.placed is not None else {}


def solve_stage(request: StageRequest, policy: PlanPolicy, before: SolveStage | None) -> SolveStage:
    """Plan the tasks of one part, with the configurations of earlier ones fixed."""
    search, settled = _search(request, before)
    known = search.restriction
    if known is not None and known.stays:
        running = search.place(known.choice)
        if running is not None:
            return _kept(search, running, known)
        search, settled = _search(request, before, may_stay=False)  # a node has less than when it was placed
        known = search.restriction
    fixed = dict.fromkeys(range(settled), 0)
    as_before = search.place(fixed) if settled else None
    if not any(each.candidates for each in search.tasks[settled:]):
        return SolveStage(search, settled, as_before, None, {}, queued_tasks(search, fixed, None))
    chosen = known is not None and bool(known.chosen)
    # a stopped solve must return quickly, and baselines of very many tasks take longer than all the rest
    without = chosen and (request.params.stopped or len(search.tasks) > _MOST_COMPARED)
    baselines = {} if without else _baselines(search, settled)
    start = _best(policy, search, baselines.values())
    first = _hinted(search.tasks, request.hint, settled) or (start.choice if start else None)
    if known is not None:
        first = known.choice
    outcome = policy.plan(search, first)
    if without and outcome.placed is None:
        baselines = _baselines(search, settled)
    kept = [each for each in search.constraints if each.code] + list(outcome.promises)
    baselines = {name: each for name, each in baselines.items() if keeps_all(kept, each.choice)}
    rivals = [outcome.placed, *baselines.values()]
    placed = _best(policy, search, [each for each in rivals if each is not None]) or as_before
    if placed is None or not placed.choice:
        limited = any(each.code for each in search.constraints)
        asked = search if outcome.placed is not None and limited else None
        return SolveStage(search, settled, placed, outcome, baselines, queued_tasks(search, fixed, asked))
    placed = _heaviest(policy, search, placed, outcome, settled)
    placed = _fewest_moves(policy, search, placed, outcome)
    waiting = queued_tasks(search, placed.choice, search)
    return SolveStage(search, settled, placed, outcome, baselines, waiting)


def _kept(search: Search, running: Placed, known: Restriction) -> SolveStage:
    """Return the running plan as the result."""
    waiting = queued_tasks(search, running.choice, search)
    outcome = PolicyResult(running, {"lp": known.lp_bound}, duals=known.duals)
    return SolveStage(search, 0, running, outcome, {"running": running}, waiting)


def _search(request: StageRequest, before: SolveStage | None, *, may_stay: bool = True) -> tuple[Search, int]:
    """Make the search of a stage; settled tasks have one candidate, which they must run in."""
    fixed = _fixed(before)
    names = request.part | {each.task.id for each in fixed}
    problem = _only(request.problem, names)
    priced = priced_tasks(problem, _only(request.shares_of, request.part), request.part, request.known)
    known = None if fixed else _restricted(request, priced, may_stay=may_stay)
    if known is None:
        tasks = [*fixed, *(each.candidates() for each in priced)]
    else:
        tasks = [each.candidates(numbers) for each, numbers in zip(priced, known.numbers, strict=True)]
    constraints = base_constraints(tasks, problem.cluster)
    without_room = no_host_room(tasks, problem.cluster)
    constraints += [] if without_room is None else [without_room]
    constraints += [run_in(f"tier:{each.task.id}", t, (0,), "tier") for t, each in enumerate(fixed)]
    if problem.budget_per_hour is not None:
        constraints.append(budget_constraint(tasks, problem.cluster, problem.budget_per_hour))
    forbidden = _hinted(tasks, request.other_than, 0)
    if forbidden is not None:
        constraints.append(no_good(tasks, forbidden))
    return Search(problem, tasks, constraints, request.params, request.budget, known), len(fixed)


def _restricted(request: StageRequest, priced: Sequence[PricedTask], *, may_stay: bool) -> Restriction | None:
    """Narrow very many configurations to those near the best; a running plan stays where that is as good.

    Only where the objective is the plain sum of values within the cluster's limits.
    """
    problem, params = request.problem, request.params
    if any(each.members for each in priced):
        _refuse_very_many(priced)
        return None
    limited = problem.budget_per_hour is not None or any(
        task.deadline or task.min_steps_per_s or task.latency_first for task in problem.tasks
    )
    if problem.policy is not Policy.THROUGHPUT or limited:
        return None
    many = sum(map(len, priced)) > backends.MANY
    stay = may_stay and bool(problem.running) and request.other_than is None
    if not many and not stay:
        return None
    interrupter = params.interrupter
    effort = Effort(
        params.gap / 2 if many else params.gap,
        request.budget.work_left_s if params.deterministic else request.budget.left_s / 2,
        params.seed,
        params.deterministic,
        lambda: params.stopped,
        no_report if interrupter is None else interrupter.report,
    )
    return restrict(
        priced, problem.cluster, effort, kept_gap=params.kept_gap if stay else None, only_running=not many
    )


def _refuse_very_many(priced: Sequence[PricedTask]) -> None:
    configurations = sum(map(len, priced))
    if configurations > _MOST_JOINT:
        raise WorkloadError(
            "too many ways to run tasks that may share pools",
            got=f"{configurations} configurations",
            allowed=f"{_MOST_JOINT} where any tasks share",
            way_out="declare fewer sets in `sharing`, or give roles fewer layouts or `max_gpus`",
        )


def _fixed(before: SolveStage | None) -> list[TaskCandidates]:
    """Restrict every running task of earlier stages to the configuration it has; its value is settled."""
    if before is None:
        return []
    return [
        replace(each, candidates=(replace(each.candidates[before.choice[t]], value=0.0),))
        for t, each in enumerate(before.search.tasks)
        if t in before.choice
    ]


def _only(problem: Problem, tasks: Iterable[str]) -> Problem:
    names = set(tasks)
    if all(task.id in names for task in problem.tasks):
        return problem
    return replace(
        problem,
        tasks=tuple(task for task in problem.tasks if task.id in names),
        running=tuple(held for held in problem.running if held.task in names),
    )


def _baselines(search: Search, settled: int) -> dict[str, Placed]:
    """Place the baselines, without the tasks for which there turns out to be no place."""
    begin = dict.fromkeys(range(settled), 0)
    alone = [each for each in search.tasks if not each.members]  # baselines have no joint runs
    choices = {"greedy": greedy(alone, search.constraints, begin)}
    if not settled:
        choices = {"equal-split": equal_split(alone, search.constraints, search.problem.cluster), **choices}
        if search.problem.running:
            choices["running"] = keep_running(search.tasks)
    placed = {
        name: search.place_most(choice, settled)
        for name, choice in choices.items()
        if _allowed(search, choice)
    }
    return {name: each for name, each in placed.items() if each is not None}


def _allowed(search: Search, choice: Choice) -> bool:
    """Return whether a choice keeps the rows that placement does not check."""
    return keeps_all([row for row in search.constraints if row.code or row.name == "no-good"], choice)


def _best(policy: PlanPolicy, search: Search, rivals: Iterable[Placed]) -> Placed | None:
    """Pick the best of several placed choices; the first of equals."""
    return max(rivals, key=lambda placed: policy.rank(search, placed.choice), default=None)


def _hinted(tasks: Sequence[TaskCandidates], hint: Plan | None, settled: int) -> Choice | None:
    """Translate a plan into candidate numbers; a hint must be complete to be of use.

    Where stages before have settled tasks, what it says of tasks unknown here is for another stage.
    """
    if hint is None:
        return None
    numbers = {each.task.id: t for t, each in enumerate(tasks)}
    choice: Choice = {}
    for configuration in hint.configurations:
        t = numbers.get(configuration.task)
        if t is None:
            if settled:
                continue
            return None
        for c, entry in enumerate(tasks[t].candidates):
            if entry.configuration.phases == configuration.phases:
                choice[t] = c
                break
        else:
            return None
    return choice


def _heaviest(
    policy: PlanPolicy, search: Search, placed: Placed, outcome: PolicyResult, settled: int
) -> Placed:
    """Among plans as good as the one found, take the one whose tasks weigh most: of equals the heavier runs.

    Asked only where a waiting task weighs more than one that runs, and nothing runs yet that would have
    to move for it.
    """
    weights = {t: _weight(search.tasks[t]) for t in range(settled, len(search.tasks))}
    chosen = [t for t in placed.choice if t in weights]
    busy = {*chosen, *(member for t in chosen for member in search.tasks[t].members)}
    waiting = [w for t, w in weights.items() if t not in busy and search.tasks[t].candidates]
    if search.problem.running or max(waiting, default=0.0) <= min((weights[t] for t in chosen), default=0.0):
        return placed
    values = {(t, c): w for t, w in weights.items() for c in range(len(search.tasks[t].candidates))}
    return _as_good(policy, search, placed, outcome, values)


def _weight(each: TaskCandidates) -> float:
    """Return the weight of a task, or of all that run jointly as one."""
    members = each.task.members if isinstance(each.task, JointTask) else (each.task,)
    return sum(member.weight for member in members)


def _fewest_moves(policy: PlanPolicy, search: Search, placed: Placed, outcome: PolicyResult) -> Placed:
    """Among plans as good as the one found, take the one that moves least."""
    if not search.problem.running:
        return placed
    return _as_good(policy, search, placed, outcome, _move_values(search.tasks))


def _as_good(
    policy: PlanPolicy, search: Search, placed: Placed, outcome: PolicyResult, values: Mapping[At, float]
) -> Placed:
    """Among plans as good as the one found, take the one with the largest other value."""
    objective = plan_value(search.tasks, placed.choice)
    slack = search.params.move_tolerance * max(1.0, abs(objective))
    many = backends.are_many(search.tasks, search.params)
    rows: tuple[Constraint, ...] = (*outcome.promises, value_floor(search.tasks, objective - slack))
    _, other = search.until_placed(
        lambda: maximise(
            search.tasks,
            [*search.constraints, *rows],
            values,
            replace(search.params, gap=0.0),
            limit_s=min(search.step_s(), _AS_GOOD_S if many else math.inf),
            hint=placed.choice,
        )
    )
    if other is None or not keeps_all(outcome.promises, other.choice):
        return placed
    if policy.objective(search, other.choice) < policy.objective(search, placed.choice) - slack:
        return placed
    return other


def _move_values(tasks: Sequence[TaskCandidates]) -> dict[At, float]:
    """Value candidates by the state they leave in place; then, between equals, the first ones.

    Pausing a running task counts as moving all it could ever move.
    """
    moved = {
        (t, c): entry.moved_mib if each.running else 0.0
        for t, each in enumerate(tasks)
        for c, entry in enumerate(each.candidates)
    }
    most = max(moved.values(), default=0.0) or 1.0
    tie = 1.0 / (1 + max((len(each.candidates) for each in tasks), default=0) * max(1, len(tasks)))
    pause = float(_STEPS + 1)
    return {
        at: pause * _running_in(tasks, at[0]) - math.ceil(_STEPS * mib / most) - tie * at[1]
        for at, mib in moved.items()
    }


def _running_in(tasks: Sequence[TaskCandidates], t: int) -> int:
    """Count the running tasks that go on when one does, several of them jointly."""
    return sum(tasks[member].running for member in tasks[t].members or (t,))
