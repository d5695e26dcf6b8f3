"""`fair-share`: every team gets its quota, and may borrow GPUs that others leave idle.

First the largest sum with quotas as limits; then without limits, but with no team's value below what
it was. A team's deadlines are first kept within its quota, the others where GPUs are idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from libra_plan.planner.optimize.baselines import greedy
from libra_plan.planner.optimize.constraints import Choice, Constraint
from libra_plan.planner.optimize.master import Placed, Search
from libra_plan.planner.optimize.policies.base import PolicyResult
from libra_plan.planner.optimize.policies.requirements import require
from libra_plan.planner.optimize.policies.throughput import Throughput, best_sum
from libra_plan.planner.plan import Pass, TeamShare
from libra_plan.planner.problem import Problem, Quota

__all__ = ["FairShare", "team_shares"]

NO_TEAM = "-"
_SAME = 1e-9
_TRIES = 3


@dataclass(frozen=True, slots=True)
class FairShare(Throughput):
    """Maximise the sum within quotas, then beyond them without loss to any team."""

    def plan(self, search: Search, hint: Choice | None) -> PolicyResult:
        """Plan within the quotas, keep what each team has then, and plan again without them."""
        limits = _quota_rows(search)
        search.constraints += limits
        require(search, None)
        by_hand = greedy(search.tasks, search.constraints)
        within = best_sum(search, by_hand)
        if within.placed is None and not within.infeasible:  # the limit has passed: a baseline, or nothing
            within = replace(within, placed=search.place_most(by_hand) or Placed({}, {}))
        at_quota = _pass("quota", search, within)
        search.constraints[:] = [
            row for row in search.constraints if row not in limits and row.code != "latency"
        ]
        if within.placed is None:
            return within
        floors = _values(search, within.placed.choice)
        required = require(_floored(search, floors), within.placed.choice)
        found = _beyond(search, floors, required.hint or within.placed.choice)
        placed = found.placed or within.placed
        passes = (*at_quota, *required.passes, *_pass("borrow", search, found))
        promises = tuple(row for row in search.constraints if row.code == "quota")
        return replace(
            found, placed=placed, promises=promises, passes=passes, missed=required.missed, floors=floors
        )


def _pass(name: str, search: Search, outcome: PolicyResult) -> tuple[Pass, ...]:
    if outcome.placed is None:
        return ()
    objective = FairShare().objective(search, outcome.placed.choice)
    bound = max(objective, min(outcome.bounds.values(), default=objective))
    return (Pass(name, objective, bound, tuple(sorted(outcome.duals.items()))),)


def _team(search: Search, t: int) -> str:
    return search.tasks[t].task.team or NO_TEAM


def _quotas(problem: Problem) -> dict[str, Quota]:
    """Map every team to its quota; a team without one may only borrow."""
    known = {quota.team: quota for quota in problem.quotas}
    teams = dict.fromkeys([*known, *(task.team or NO_TEAM for task in problem.tasks)])
    return {team: known.get(team, Quota(team, 0)) for team in teams}


def _quota_rows(search: Search) -> list[Constraint]:
    rows = []
    for team, quota in _quotas(search.problem).items():
        for gpu_class, limit in ((None, quota.gpus), *quota.gpus_of_class):
            needs = {
                (t, c): float(_gpus(entry.configuration.blocks, gpu_class))
                for t, each in enumerate(search.tasks)
                if _team(search, t) == team
                for c, entry in enumerate(each.candidates)
            }
            used = {at: need for at, need in needs.items() if need}
            rows.append(Constraint(f"quota:{team}:{gpu_class or 'all'}", used, float(limit), "quota"))
    return rows


def _gpus(blocks: tuple[tuple[str, int, int], ...], gpu_class: str | None) -> int:
    return sum(size * number for name, size, number in blocks if gpu_class in (None, name))


def _values(search: Search, choice: Choice) -> dict[str, float]:
    found = dict.fromkeys(_quotas(search.problem), 0.0)
    for t, c in choice.items():
        found[_team(search, t)] += search.tasks[t].candidates[c].value
    return found


def _floored(search: Search, floors: Mapping[str, float], more: Mapping[str, float] | None = None) -> Search:
    """Write the floors into the search, in place of those written before; `more` is added to them."""
    search.constraints[:] = [row for row in search.constraints if row.code != "quota"]
    for team, floor in floors.items():
        if floor > 0:
            value = {
                (t, c): -entry.value
                for t, each in enumerate(search.tasks)
                if _team(search, t) == team
                for c, entry in enumerate(each.candidates)
            }
            limit = floor * (1 - _SAME) + (more or {}).get(team, 0.0)
            search.constraints.append(Constraint(f"quota:{team}:value", value, -limit, "quota"))
    return search


def _beyond(search: Search, floors: Mapping[str, float], hint: Choice) -> PolicyResult:
    """Maximise the sum above the floors; the master rounds, so floors that it missed are raised."""
    more: dict[str, float] = {}
    for _ in range(_TRIES):
        found = best_sum(search, hint)
        if found.placed is None:
            break
        has = _values(search, found.placed.choice)
        short = {team: floor - has[team] for team, floor in floors.items() if has[team] < floor * (1 - _SAME)}
        if not short:
            return found
        more = {team: more.get(team, 0.0) + 2 * missing for team, missing in short.items()}
        _floored(search, floors, more)
    _floored(search, floors)
    return replace(found, placed=None)


def team_shares(search: Search, choice: Choice, floors: Mapping[str, float]) -> tuple[TeamShare, ...]:
    """Return, for each team with a floor, its GPUs and how many of them are borrowed.

    Other policies set no floors, and under them a task may run jointly with one of another team.
    """
    if not floors:
        return ()
    now = _values(search, choice)
    shares = []
    for team, quota in _quotas(search.problem).items():
        if team not in floors:
            continue
        blocks = [
            block
            for t, c in choice.items()
            if _team(search, t) == team
            for block in search.tasks[t].candidates[c].configuration.blocks
        ]
        gpus = _gpus(tuple(blocks), None)
        over = sum(max(0, _gpus(tuple(blocks), name) - limit) for name, limit in quota.gpus_of_class)
        borrowed = max(0, gpus - quota.gpus, over)
        shares.append(TeamShare(team, quota.gpus, gpus, borrowed, floors[team], now[team]))
    return tuple(shares)
