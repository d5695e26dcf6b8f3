"""Why a task waits: a stable code for scripts and a sentence that names the limit.

`refused`   no option of a role could be priced
`memory`    no option fits the memory of any GPU
`limits`    the task's own minimum, maximum, pinned or excluded GPUs leave no way to run
`capacity`  it needs more GPUs (or larger blocks) than the cluster has
`cpu`       CPU cores or host memory do not suffice
`worth`     it could run, but the others have a higher value on these GPUs
`time`      the search ended before its value on these GPUs was known

Policies and what tasks require leave less room than the cluster has (docs/policies.md):

`tier`      higher tiers hold what it needs
`quota`     its team's quota is used, and what is idle beyond the others' quotas does not suffice
`budget`    with it the plan would cost more than the budget
`deadline`  with it another task would miss its deadline
`latency`   with it a latency-first task would be slower, or would have to wait
`aging`     tasks that have waited longer run first
"""

from __future__ import annotations

from dataclasses import replace

from libra_plan.models.topology import Cluster
from libra_plan.planner.configurations.capacity import capacities
from libra_plan.planner.optimize.backends import are_many, maximise
from libra_plan.planner.optimize.constraints import NO_ROOM, At, Choice, Constraint, must_run
from libra_plan.planner.optimize.master import Search
from libra_plan.planner.optimize.objective import TaskCandidates, plan_value, values_of
from libra_plan.planner.plan import QueuedTask
from libra_plan.planner.problem import Task
from libra_plan.profiles.counting import counted

__all__ = ["queued_tasks"]

_EXPLAIN_S = 1.0  # an explanation may take a second, not the whole limit
_EXPLAIN_ALL_S = 3.0  # and all of them together a little more: a solve may not go on long past its limit
_TRIED = 200  # candidates that are placed one by one to find out why nothing runs
_ALONE = "GPUs suffice, but CPU cores, host memory or pinned GPUs do not"
_WEIGHED = 8  # tasks whose waiting is explained by a solve of its own; of more, the others get a plain reason


def queued_tasks(search: Search, choice: Choice, asked: Search | None) -> list[QueuedTask]:
    """Return every waiting task with its code and reason; `asked` finds what running it would cost."""
    found: list[QueuedTask] = []
    waiting = len(search.tasks) - len(choice)
    many = search.restriction is not None or are_many(search.tasks, search.params)
    weighed = _WEIGHED if many and waiting > _WEIGHED else 0  # a solve each takes long
    below = _below_tiers(search, choice)
    alone: dict[object, bool] = {}
    ends = search.budget.clock() + _EXPLAIN_ALL_S

    def late() -> bool:
        return not search.params.deterministic and search.budget.clock() > ends

    jointly = {member for t in choice for member in search.tasks[t].members}
    for t, each in enumerate(search.tasks):
        if t in choice or t in jointly or each.members:
            continue
        told = _cannot_run(search.problem.cluster, each.task) if not each.candidates else _no_host(search, t)
        if told is None and t in below:
            told = _blocked(search, t, "tier")
        if told is None and asked is not None and weighed >= _WEIGHED:
            told = _outweighed(asked, t, alone)
        if (
            told is None
            and asked is None
            and len(each.candidates) <= _TRIED
            and _alone_unplaceable(search, t)
        ):
            told = QueuedTask(each.task.id, "cpu", f"{each.task.id}: {_ALONE}")
        if told is None and asked is not None and late():
            told = _not_known(each.task.id)
        if told is None:
            weighed += 1
            told = _not_worth_it(each, t, choice, asked)
        found.append(told)
    return found


def _no_host(search: Search, t: int) -> QueuedTask | None:
    """Return the reason if CPU cores or host memory are too few for every form: in all, or node by node."""
    task = search.tasks[t].task
    for row in search.constraints:
        if row.name == NO_ROOM and all(
            (t, c) in row.coefficients for c in range(len(search.tasks[t].candidates))
        ):
            reason = "no node has the CPU cores and host memory that its GPUs and workers need beside them"
            return QueuedTask(
                task.id,
                "cpu",
                f"{task.id}: {reason}; state or add `cpu_cores` and `host_memory_mib` of the nodes",
            )
        if row.name not in _HOST:
            continue
        least = min(row.coefficients.get((t, c), 0.0) for c in range(len(search.tasks[t].candidates)))
        if least > row.limit * (1 + 1e-9):
            what, unit, key = _HOST[row.name]
            there = f"{row.limit:,.10g}" if row.limit else "none that are stated"
            return QueuedTask(
                task.id,
                "cpu",
                f"{task.id}: needs {least:,.10g} {unit} of {what} in its smallest form, the cluster has "
                f"{there}; state or add `{key}` of the nodes",
            )
    return None


_HOST = {
    "cpu-cores": ("CPU", "cores", "cpu_cores"),
    "host-memory": ("host memory", "MiB", "host_memory_mib"),
}


def _outweighed(search: Search, t: int, alone: dict[object, bool]) -> QueuedTask | None:
    """Return a plain reason if a task could run alone and only waits for the GPUs of others.

    `alone` remembers of alike tasks whether they can.
    """
    if any(row.code for row in search.constraints):
        return None
    task, entries = search.tasks[t].task, search.tasks[t].candidates
    smallest = min(range(len(entries)), key=lambda c: (entries[c].configuration.gpus, c))
    key = (entries[smallest].configuration.phases, tuple(replace(role, options=()) for role in task.roles))
    if key not in alone:
        alone[key] = search.place({t: smallest}) is not None
    if not alone[key]:
        return None
    return QueuedTask(
        task.id,
        "worth",
        f"{task.id}: would run on {counted(entries[smallest].configuration.gpus, 'GPU')}, but no plan was "
        f"found that is worth more with it; {_FIRST}",
    )


def _cannot_run(cluster: Cluster, task: Task) -> QueuedTask:
    for role in task.gpu_roles:
        if not role.options:
            why = role.refusals[0] if role.refusals else "no layout was given"
            return QueuedTask(task.id, "refused", f"{task.id}: role {role.id} cannot be priced: {why}")
    classes = capacities(cluster)
    largest = max((each.memory_mib for each in classes.values()), default=0.0)
    for role in task.gpu_roles:
        least = min(option.peak_mib for option in role.options)
        if least > largest:
            return QueuedTask(
                task.id,
                "memory",
                f"{task.id}: role {role.id} needs {least:,.0f} MiB on each GPU in its smallest form; "
                f"the largest GPU has {largest:,.0f} MiB; allow more GPUs per replica or a smaller batch",
            )
    gpus = sum(each.gpus for each in classes.values())
    needed = sum(min(option.gpus for option in role.options) for role in task.gpu_roles)
    if _own_limits(task):
        return QueuedTask(
            task.id,
            "limits",
            f"{task.id}: its own limits leave no way to run on {counted(gpus, 'GPU')}: "
            f"{', '.join(_own_limits(task))}",
        )
    return QueuedTask(
        task.id,
        "capacity",
        f"{task.id}: needs {counted(needed, 'GPU')} with every role apart in its smallest form, or one pool "
        f"whose memory its roles fit together; the cluster has {counted(gpus, 'usable GPU')} in nodes of "
        f"{', '.join(str(n) for each in classes.values() for n in sorted(set(each.node_gpus)))}"
        f"{_left_out(cluster)}",
    )


def _left_out(cluster: Cluster) -> str:
    """Name the holders of the GPUs that no plan may use."""
    note = cluster.usable_note()
    return f" ({note})" if note else ""


def _own_limits(task: Task) -> list[str]:
    limits = []
    if task.min_gpus:
        limits.append(f"min_gpus {task.min_gpus}")
    if task.max_gpus is not None:
        limits.append(f"max_gpus {task.max_gpus}")
    for role in task.gpu_roles:
        if role.min_gpus > 1 or role.max_gpus is not None:
            limits.append(f"{role.id} {role.min_gpus}..{role.max_gpus or 'any'} GPUs")
        if role.pinned_gpus:
            limits.append(f"{role.id} pinned to {len(role.pinned_gpus)} GPUs")
        if role.excluded_gpus:
            limits.append(f"{role.id} excluded from {len(role.excluded_gpus)} GPUs")
    return limits


def _not_worth_it(each: TaskCandidates, t: int, choice: Choice, search: Search | None) -> QueuedTask:
    """Solve again with the task forced to run, to find out what that would cost the others."""
    name = each.task.id
    smallest = min(entry.configuration.gpus for entry in each.candidates)
    if search is None:
        return QueuedTask(name, "capacity", f"{name}: needs {counted(smallest, 'GPU')}; none could be placed")
    forced_in = must_run("must-run", search.tasks, t)
    values = values_of(search.tasks)
    if search.params.stopped:
        return _not_known(name)
    forced = maximise(
        search.tasks, [*search.constraints, forced_in], values, search.params, limit_s=_EXPLAIN_S
    )
    if forced.choice is None and not forced.infeasible:
        return _not_known(name)
    if forced.choice is None:
        code = _blocking(search, forced_in)
        if code is not None:
            return _blocked(search, t, code)
        if forced.infeasible and _alone_unplaceable(search, t):
            return QueuedTask(name, "cpu", f"{name}: {_ALONE}")
        return QueuedTask(name, "capacity", f"{name}: needs {counted(smallest, 'GPU')}; none could be placed")
    now = plan_value(search.tasks, choice)
    if _only_money_is_missing(search, forced_in, values, now):
        return _blocked(search, t, "budget")
    then = plan_value(search.tasks, forced.choice)
    if now - then <= 5e-4:
        return QueuedTask(
            name,
            "worth",
            f"{name}: could run, but a plan with it is worth no more ({then:.3f}), and of equals the heavier "
            f"tasks run; {_FIRST}",
        )
    runs_in = next(
        search.tasks[u].candidates[c]
        for u, c in forced.choice.items()
        if u == t or t in search.tasks[u].members
    )
    return QueuedTask(
        name,
        "worth",
        f"{name}: would run on {counted(runs_in.configuration.gpus, 'GPU')}, but the "
        f"plan would then be worth {then:.3f} instead of {now:.3f}; {_FIRST}, or let --policy max-min "
        "serve everybody",
    )


def _blocked(search: Search, t: int, code: str) -> QueuedTask:
    """Return the reason if another promise of the policy keeps a task from running."""
    each = search.tasks[t]
    smallest = min(entry.configuration.gpus for entry in each.candidates)
    return QueuedTask(each.task.id, code, f"{each.task.id}: {_BLOCKED[code].format(smallest=smallest)}")


def _below_tiers(search: Search, choice: Choice) -> set[int]:
    """List the tasks that find no room beside what higher tiers have, whatever else would wait.

    Sums prove that without a solve; where tasks keep other promises, too, those are asked.
    """
    settled = [next(iter(row.coefficients)) for row in search.constraints if row.code == "tier"]
    if any(row.code not in ("", "tier") for row in search.constraints):
        return set()
    found: set[int] = set()
    for row in search.constraints if settled else ():
        used = sum(row.coefficients.get(at, 0.0) for at in settled)
        if row.code or row.limit < 0 or used == 0.0:
            continue
        least: dict[int, float] = {}
        for t, each in enumerate(search.tasks):
            if t not in choice and each.candidates:
                least[t] = min(row.coefficients.get((t, c), 0.0) for c in range(len(each.candidates)))
        found |= {
            t for t, need in least.items() if row.limit * (1 + 1e-9) < used + need and need <= row.limit
        }
    return found


_FIRST = "add GPUs, or give it a smaller `tier` than the others under --policy priority"
"""What brings a task in. Not its weight: its fair share grows with that, and most of it cancels."""

_BLOCKED = {
    "tier": "higher tiers hold the GPUs it needs ({smallest} at least); lower its tier number or add GPUs",
    "quota": "needs {smallest} GPUs at least, its team's quota does not give them, and none are idle that "
    "other teams' quotas leave; raise the quota or add GPUs",
    "budget": "needs {smallest} GPUs at least, which the budget does not pay for; raise --budget",
    "deadline": "would run, but then another task would miss its deadline; relax that or add GPUs",
    "latency": "would run, but then a latency-first task would be slower; add GPUs or unmark that task",
    "aging": "would run, but tasks that have waited longer come first",
}


def _only_money_is_missing(
    search: Search, forced_in: Constraint, values: dict[At, float], now: float
) -> bool:
    """Return whether, without the budget, the task would run and the others lose nothing."""
    rows = [row for row in search.constraints if row.code != "budget"]
    if len(rows) == len(search.constraints):
        return False
    richer = maximise(search.tasks, [*rows, forced_in], values, search.params, limit_s=_EXPLAIN_S).choice
    return richer is not None and sum(values[at] for at in richer.items()) >= now * (1 - 1e-9)


def _blocking(search: Search, forced_in: Constraint) -> str | None:
    """Find the reason whose rows alone leave no room for a task, or the first of several together."""
    codes = list(dict.fromkeys(row.code for row in search.constraints if row.code))
    for dropped in [*([code] for code in codes), codes]:
        rows = [row for row in search.constraints if row.code not in dropped]
        if (
            dropped
            and maximise(search.tasks, [*rows, forced_in], {}, search.params, limit_s=_EXPLAIN_S).choice
        ):
            return dropped[0]
    return None


def _not_known(name: str) -> QueuedTask:
    reason = f"{name}: time ended before a plan with it was weighed; raise --time-limit, or add GPUs"
    return QueuedTask(name, "time", reason)


def _alone_unplaceable(search: Search, t: int) -> bool:
    """Return whether it is proven that the task fits in no form, even with the cluster to itself."""
    alone: list[Choice] = [{t: c} for c in range(len(search.tasks[t].candidates))]
    return all(search.place(each) is None and not search.is_undecided(each) for each in alone)
