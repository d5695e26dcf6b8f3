"""The best plan when tasks may run jointly: every disjoint choice of declared sets, each tried in full.

Steps are found by letting two tasks take turns, round after round, with a clock for each pool; no
formula is used. Everything else is the oracle's of single tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import Any

from oracle import Oracle
from oracle_configurations import Way

from libra_plan.planner.problem import Problem, Role, Sharing, StageOption, Task

ROUNDS = 12


def best_jointly(problem: Problem) -> float:
    """Return the greatest sum of worths any plan has, with and without sharing; nothing runs yet."""
    best = 0.0
    for number in range(len(problem.sharing) + 1):
        for chosen in combinations(problem.sharing, number):
            names = [name for sharing in chosen for name in sharing.tasks]
            if len(set(names)) == len(names):
                best = max(best, _best_of(problem, chosen, set(names)))
    return best


def _best_of(problem: Problem, chosen: tuple[Sharing, ...], jointly: set[str]) -> float:
    oracle = Oracle(problem, lambda entry: entry[1])
    items = [oracle.entries(task) for task in problem.tasks if task.id not in jointly]
    items += [_entries(oracle, sharing) for sharing in chosen]
    states = {0: 0.0}
    for entries in items:
        grown = dict(states)
        for state, total in states.items():
            for more, (_, worth) in entries.items():
                if oracle.fits(state + more):
                    grown[state + more] = max(grown.get(state + more, 0.0), total + worth)
        states = grown
    return max(states.values())


def _entries(oracle: Oracle, sharing: Sharing) -> dict[int, tuple[float, float]]:
    members = [oracle.problem.task_of[name] for name in sharing.tasks]
    units = [oracle.reference(member) for member in members]
    if None in units:
        return {}
    worth = sum(member.weight / unit for member, unit in zip(members, units, strict=True))
    both = replace(members[0], id="both", roles=tuple(role for each in members for role in each.roles))
    found: dict[int, tuple[float, float]] = {}
    best: dict[Any, Way] = {}
    for way in _ways(oracle, sharing, members):
        key = oracle._footprint(both, way)
        if key not in best or way.seconds < best[key].seconds:
            best[key] = way
    for way in best.values():
        for state in oracle.states(both, way):
            for whole in oracle.with_workers(both, state):
                value = worth / way.seconds
                if whole not in found or found[whole][1] < value:
                    found[whole] = (value, value)
    return found


def _ways(oracle: Oracle, sharing: Sharing, members: list[Task]) -> Iterator[Way]:
    for pools in _turn_pools(oracle, members):
        for asleep in product(*((False, True) if len(pool) > 1 else (False,) for pool in pools)):
            phase = tuple(
                (tuple((role, option) for _, role, option in pool), sleeps)
                for pool, sleeps in zip(pools, asleep, strict=True)
            )
            phases = (phase,)
            if any(len({option.gpu_class for _, option in pool}) > 1 for pool, _ in phase):
                continue
            if not oracle._has_memory(phases):
                continue
            seconds = _seconds(members, pools, asleep)
            way = Way(phases, 0, seconds)
            gpus = sum(size * number for (_, size), number in oracle.blocks(way).items())
            if any(member.roles_fill_pools for member in members) and not oracle._filled(way):
                continue
            if any(member.max_gpus is not None and gpus > member.max_gpus for member in members):
                continue
            yield Way(phases, gpus, seconds)


Placed = tuple[int, Role, StageOption]
"""Number of the member, role, option."""


def _turn_pools(oracle: Oracle, members: list[Task]) -> Iterator[tuple[list[Placed], ...]]:
    cuts = [[at for at in range(1, len(member.gpu_roles)) if _allows(member, at)] for member in members]
    for at in product(*cuts):
        for options in product(*(product(*_usable(oracle, member)) for member in members)):
            pools: tuple[list[Placed], ...] = ([], [])
            for number, (cut, chosen) in enumerate(zip(at, options, strict=True)):
                for place, (role, option) in enumerate(chosen):
                    pools[place >= cut].append((number, role, option))
            yield pools


def _allows(member: Task, cut: int) -> bool:
    wanted = "separate" if len(member.gpu_roles) == 2 else "hybrid"
    return 0 < cut < len(member.gpu_roles) and wanted in {each.value for each in member.arrangements}


def _usable(oracle: Oracle, member: Task) -> list[list[tuple[Role, StageOption]]]:
    return [[(role, o) for o in role.options if oracle._may(role, o)] for role in member.gpu_roles]


def _time(pool: list[Placed], asleep: bool, member: int) -> float:
    return sum(
        option.time_s.value + (option.sleep_s + option.wake_s if asleep else 0.0)
        for owner, _, option in pool
        if owner == member
    )


def _seconds(members: list[Task], pools: tuple[list[Placed], ...], asleep: tuple[bool, ...]) -> float:
    work = [[_time(pool, sleeps, m) for pool, sleeps in zip(pools, asleep, strict=True)] for m in (0, 1)]
    return _take_turns(work, [member.sync_s for member in members])


def _take_turns(work: list[list[float]], handovers: list[float]) -> float:
    """Run both tasks round after round and give the time between rounds once it has settled.

    Each task goes through the first pool, then the second, then hands over its weights, for which
    both pools must stand still.
    """
    free, ready = [0.0, 0.0], [0.0, 0.0]
    begun = []

    def use(task: int, pool: int) -> None:
        ends = max(free[pool], ready[task]) + work[task][pool]
        free[pool] = ready[task] = ends

    def hand_over(task: int) -> None:
        if handovers[task]:
            free[0] = free[1] = ready[task] = max(*free, ready[task]) + handovers[task]

    for _ in range(2 * ROUNDS):
        use(0, 0)
        use(1, 1)
        hand_over(1)
        use(1, 0)
        use(0, 1)
        hand_over(0)
        begun.append(max(free))
    return (begun[-1] - begun[ROUNDS - 1]) / ROUNDS
