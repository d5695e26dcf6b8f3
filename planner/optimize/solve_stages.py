"""One stage of a solve: some of the tasks, planned beside those that earlier stages have settled.

Nearly every policy has one stage with all tasks; `priority` has one a tier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from libra_plan.errors import WorkloadError
from libra_plan.planner.configurations.joint import JointTask
from libra_plan.planner.configurations.known import KnownConfigurations
from libra_plan.planner.optimize import backends
from libra_plan.planner.optimize.backends import maximise
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.baselines import equal_split, fits_rows, greedy, keep_running
from libra_plan.planner.optimize.colgen.search import Limits
from libra_plan.planner.optimize.constraints import (
    At,
    Choice,
    Row,
    master_rows,
    must_row,
    no_good_row,
    worth_row,
)
from libra_plan.planner.optimize.host_room import no_room_row
from libra_plan.planner.optimize.master import Budget, Placed, Search
from libra_plan.planner.optimize.minimum_migration import move_values
from libra_plan.planner.optimize.objective import PricedTask, TaskCandidates, priced_tasks
from libra_plan.planner.optimize.policies.base import Outcome, Rule, total_worth
from libra_plan.planner.optimize.policies.budget import budget_row
from libra_plan.planner.optimize.restricted_master import Focus, focus, running_stays
from libra_plan.planner.optimize.unscheduled import queued_tasks
from libra_plan.planner.plan import Plan, QueuedTask
from libra_plan.planner.problem import Policy, Problem

__all__ = ["Ask", "Stage", "solve_stage"]

_MOST_JOINT = (
    20_000  # configurations, of which some are of several tasks; configuration generation knows none of those
)
_NO_LIMIT_S = 1e6  # a deterministic solve ends by its gap, not by the clock


@dataclass(frozen=True, slots=True)
class Ask:
    """What a stage is to do: plan the tasks of `part` within a budget of time."""

    problem: Problem
    shares_of: Problem
    part: frozenset[str]
    params: SolveParams
    budget: Budget
    hint: Plan | None
    other_than: Plan | None
    known: KnownConfigurations


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that is done. The first `settled` tasks of its search are those of earlier stages."""

    search: Search
    settled: int
    placed: Placed | None
    outcome: Outcome | None
    baselines: dict[str, Placed]
    queued: list[QueuedTask]

    @property
    def own(self) -> Sequence[TaskCandidates]:
        """List the tasks this stage planned."""
        return self.search.tasks[self.settled :]

    @property
    def choice(self) -> Choice:
        """Give what is chosen so far, earlier stages' tasks included."""
        return self.placed.choice if self.placed is not None else {}


def solve_stage(ask: Ask, rule: Rule, before: Stage | None) -> Stage:
    """Plan the tasks of one part, the configurations of those before as they are."""
    search, settled = _search(ask, before)
    if search.focus is not None and search.focus.stays:
        running = search.place(dict.fromkeys(search.focus.chosen, 0))
        if running is not None:
            return _kept(search, running, search.focus.bound)
        search, settled = _search(ask, before, all_stay=False)  # a node has less than when it was placed
    fixed = dict.fromkeys(range(settled), 0)
    as_before = search.place(fixed) if settled else None
    if not any(each.candidates for each in search.tasks[settled:]):
        return Stage(search, settled, as_before, None, {}, queued_tasks(search, fixed, None))
    stopped = ask.params.stopped and search.focus is not None and bool(search.focus.chosen)
    baselines = {} if stopped else _baselines(search, settled)  # whoever stopped waits for what there is
    start = _best(rule, search, baselines.values())
    first = _hinted(search.tasks, ask.hint, settled) or (start.choice if start else None)
    if search.focus is not None:
        first = dict.fromkeys(search.focus.chosen, 0)  # its choice is each task's first candidate
    outcome = rule.plan(search, first)
    kept = [row for row in search.rows if row.code] + list(outcome.promises)
    baselines = {name: each for name, each in baselines.items() if fits_rows(kept, each.choice)}
    rivals = [outcome.placed, *baselines.values()]
    placed = _best(rule, search, [each for each in rivals if each is not None]) or as_before
    if placed is None or not placed.choice:
        asked = search if outcome.placed is not None and any(row.code for row in search.rows) else None
        return Stage(search, settled, placed, outcome, baselines, queued_tasks(search, fixed, asked))
    placed = _heaviest(rule, search, placed, outcome, settled)
    placed = _fewest_moves(rule, search, placed, outcome)
    waiting = queued_tasks(search, placed.choice, search)
    return Stage(search, settled, placed, outcome, baselines, waiting)


def _kept(search: Search, running: Placed, bound: float) -> Stage:
    """Answer with the running plan."""
    waiting = queued_tasks(search, running.choice, search)
    return Stage(
        search, 0, running, Outcome(running, {"configurations": bound}), {"running": running}, waiting
    )


def _search(ask: Ask, before: Stage | None, *, all_stay: bool = True) -> tuple[Search, int]:
    """Make the search of a stage; settled tasks have one candidate, which they must run in."""
    fixed = _fixed(before)
    known = ask.part | {each.task.id for each in fixed}
    problem = _only(ask.problem, known)
    priced = priced_tasks(problem, _only(ask.shares_of, ask.part), ask.part, ask.known)
    focused = None if fixed else (_stays(ask, priced) if all_stay else None) or _focus(ask, priced)
    if focused is None:
        tasks = [*fixed, *(each.candidates() for each in priced)]
    else:
        tasks = [each.candidates(numbers) for each, numbers in zip(priced, focused.numbers, strict=True)]
    rows = master_rows(tasks, problem.cluster)
    no_room = no_room_row(tasks, problem.cluster)
    rows += [] if no_room is None else [no_room]
    rows += [must_row(f"tier:{each.task.id}", t, (0,), "tier") for t, each in enumerate(fixed)]
    if problem.budget_per_hour is not None:
        rows.append(budget_row(tasks, problem.cluster, problem.budget_per_hour))
    forbidden = _hinted(tasks, ask.other_than, 0)
    if forbidden is not None:
        rows.append(no_good_row(tasks, forbidden))
    return Search(problem, tasks, rows, ask.params, ask.budget, focused), len(fixed)


def _focus(ask: Ask, priced: Sequence[PricedTask]) -> Focus | None:
    """Look for the candidates near the best choice when there are very many, and only the cluster limits."""
    problem, params = ask.problem, ask.params
    if any(each.members for each in priced):
        _refuse_very_many(priced)
        return None
    if not _only_sums(problem, priced) or sum(map(len, priced)) <= backends.MANY:
        return None

    def told(objective: float, bound: float, gap: float, seconds: float) -> None:
        if params.watch is not None:
            params.watch.report(objective, bound)

    return focus(
        priced,
        problem.cluster,
        _limits(ask, gap=params.gap / 2),
        progress=told,
        stop=lambda: params.stopped,
        clock=ask.budget.clock,
    )


def _stays(ask: Ask, priced: Sequence[PricedTask]) -> Focus | None:
    """Keep the running plan at once where prices prove that nothing much better exists."""
    if not ask.problem.running or ask.other_than is not None or not _only_sums(ask.problem, priced):
        return None
    limits = _limits(ask, gap=ask.params.gap, kept_gap=ask.params.kept_gap)
    return running_stays(
        priced, ask.problem.cluster, limits, stop=lambda: ask.params.stopped, clock=ask.budget.clock
    )


def _only_sums(problem: Problem, priced: Sequence[PricedTask]) -> bool:
    """Tell whether the sum of worths within the cluster is all there is to plan for."""
    limited = problem.budget_per_hour is not None or any(
        task.deadline or task.min_steps_per_s or task.latency_first for task in problem.tasks
    )
    joint = any(each.members for each in priced)
    return problem.policy is Policy.THROUGHPUT and not limited and not joint


def _limits(ask: Ask, gap: float, kept_gap: float = 0.0) -> Limits:
    limit_s = _NO_LIMIT_S if ask.params.deterministic else ask.budget.left_s / 2
    return Limits(time_limit_s=limit_s, gap=gap, kept_gap=kept_gap, seed=ask.params.seed)


def _refuse_very_many(priced: Sequence[PricedTask]) -> None:
    configurations = sum(map(len, priced))
    if configurations > _MOST_JOINT:
        raise WorkloadError(
            "too many ways to run tasks that may share pools",
            got=f"{configurations} configurations",
            allowed=f"{_MOST_JOINT} where any tasks share",
            way_out="declare fewer sets in `sharing`, or give roles fewer layouts or `max_gpus`",
        )


def _fixed(before: Stage | None) -> list[TaskCandidates]:
    """Leave every running task of the stages before only the configuration it has; its worth is settled."""
    if before is None:
        return []
    return [
        replace(each, candidates=(replace(each.candidates[before.choice[t]], worth=0.0),))
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
    """Place the splits made by hand, without the tasks that do not fit when it comes to it."""
    begin = dict.fromkeys(range(settled), 0)
    alone = [each for each in search.tasks if not each.members]  # nobody shares pools by hand
    choices = {"greedy": greedy(alone, search.rows, begin)}
    if not settled:
        choices = {"equal-split": equal_split(alone, search.rows, search.problem.cluster), **choices}
        if search.problem.running:
            choices["running"] = keep_running(search.tasks)
    placed = {
        name: search.place_most(choice, settled)
        for name, choice in choices.items()
        if _allowed(search, choice)
    }
    return {name: each for name, each in placed.items() if each is not None}


def _allowed(search: Search, choice: Choice) -> bool:
    """Tell whether a choice keeps the rows that placement does not check."""
    return fits_rows([row for row in search.rows if row.code or row.name == "no-good"], choice)


def _best(rule: Rule, search: Search, rivals: Iterable[Placed]) -> Placed | None:
    """Pick the best of several placed choices; the first of equals."""
    return max(rivals, key=lambda placed: rule.rank(search, placed.choice), default=None)


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


def _heaviest(rule: Rule, search: Search, placed: Placed, outcome: Outcome, settled: int) -> Placed:
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
    return _as_good(rule, search, placed, outcome, values)


def _weight(each: TaskCandidates) -> float:
    """Give the weight of a task, or of all that run jointly as one."""
    members = each.task.members if isinstance(each.task, JointTask) else (each.task,)
    return sum(member.weight for member in members)


def _fewest_moves(rule: Rule, search: Search, placed: Placed, outcome: Outcome) -> Placed:
    """Among plans as good as the one found, take the one that moves least."""
    if not search.problem.running:
        return placed
    return _as_good(rule, search, placed, outcome, move_values(search.tasks))


def _as_good(
    rule: Rule, search: Search, placed: Placed, outcome: Outcome, values: Mapping[At, float]
) -> Placed:
    """Among plans as good as the one found, take the one of most value by something else."""
    worth = total_worth(search, placed.choice)
    slack = search.params.move_tolerance * max(1.0, abs(worth))
    rows: tuple[Row, ...] = (*outcome.promises, worth_row(search.tasks, worth - slack))
    _, other = search.until_placed(
        lambda: maximise(
            search.tasks,
            [*search.rows, *rows],
            values,
            replace(search.params, gap=0.0),
            limit_s=search.step_s(),
            hint=placed.choice,
        )
    )
    if other is None or not fits_rows(outcome.promises, other.choice):
        return placed
    if rule.objective(search, other.choice) < rule.objective(search, placed.choice) - slack:
        return placed
    return other
