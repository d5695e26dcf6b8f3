"""Small worlds for the re-plan loop: table-priced tasks, a window in which all is well, looks in a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from libra_plan.models.quantities import Estimate, Origin
from libra_plan.planner.controller.hysteresis import ReplanPolicy
from libra_plan.planner.controller.reconcile import Reconciled, reconcile
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import IncumbentTask, Problem, Task
from libra_plan.planner.tables import table_cluster, table_task
from libra_plan.planner.telemetry.observations import CheckpointAge, Moment, Observations, TaskProgress

BEGUN_S = 1_800_000_000.0


def at(look_number: float, every_s: float = 60.0) -> Moment:
    return Moment(BEGUN_S + look_number * every_s, 1000.0 + look_number * every_s, "boot")


def scaling(
    task: str, work: float, power: float, gpus: int, *, weight: float = 1.0, restart_s: float = 60.0
) -> Task:
    """Make a task whose step takes work ÷ gpus^power seconds."""
    seconds = {count: work / count**power for count in range(1, gpus + 1)}
    return table_task(task, weight, {"train": seconds}, restart_s=restart_s)


def world(
    gpus: int, tasks: Iterable[Task], running: tuple[IncumbentTask, ...] = (), per_node: int | None = None
) -> Problem:
    return Problem(table_cluster(gpus, per_node), tuple(tasks), running)


def running_best(problem: Problem) -> Problem:
    """Let the best plan of a problem run."""
    plan = solve_problem(problem, SolveParams(deterministic=True)).require_plan()
    return replace(problem, running=held_by(plan))


def well(problem: Problem, now: Moment, **more: object) -> Observations:
    """Tell that everybody has a fresh checkpoint and gets on."""
    runs = [held.task for held in problem.running]
    fields = {
        "progress": tuple(TaskProgress(task, 10.0) for task in runs),
        "checkpoints": tuple(CheckpointAge(task, 60.0) for task in runs),
        **more,
    }
    return Observations(now.wall_s, **fields)


def slower(problem: Problem, factors: Mapping[str, float]) -> Problem:
    """Price tasks anew, so many times slower in every form."""

    def price(task: Task) -> Task:
        factor = factors.get(task.id, 1.0)
        roles = tuple(
            replace(role, options=tuple(replace(o, time_s=o.time_s.scaled(factor)) for o in role.options))
            for role in task.roles
        )
        return replace(task, roles=roles)

    return replace(problem, tasks=tuple(map(price, problem.tasks)))


def unsure(problem: Problem, share: float) -> Problem:
    """Return the problem with wider bounds around every price."""

    def price(task: Task) -> Task:
        roles = tuple(
            replace(
                role,
                options=tuple(
                    replace(
                        o,
                        time_s=Estimate(
                            o.time_s.value,
                            o.time_s.value * (1 - share),
                            o.time_s.value * (1 + share),
                            "s",
                            Origin.INTERPOLATED,
                        ),
                    )
                    for o in role.options
                ),
            )
            for role in task.roles
        )
        return replace(task, roles=roles)

    return replace(problem, tasks=tuple(map(price, problem.tasks)))


def policy(**parts: Mapping[str, object]) -> ReplanPolicy:
    """Make a policy: `policy(rule={"looks_up": 1})` changes that one field."""
    made = ReplanPolicy()
    for name, fields in parts.items():
        part = msgspec.structs.replace(getattr(made, name), **fields)
        made = msgspec.structs.replace(made, **{name: part})
    return made


class Loop:
    """Looks again and again at a world that adopts what is decided."""

    def __init__(self, problem: Problem, rules: ReplanPolicy | None = None, **inputs: object) -> None:
        self.problem, self.policy, self.inputs = problem, rules or ReplanPolicy(), inputs
        self.state, self.number = LoopState(), 0
        self.all: list[Reconciled] = []

    def look(self, *, telemetry: bool = True, now: Moment | None = None, **window: object) -> Reconciled:
        """Look once; what is decided runs from then on."""
        moment = now or at(self.number)
        seen = well(self.problem, moment, **window) if telemetry else None
        looked = reconcile(LoopInputs(self.problem, self.policy, moment, seen, **self.inputs), self.state)
        self.number += 1
        plan = looked.decision.plan
        changed = plan is not None or bool(looked.decision.batch_steps)
        self.state = looked.adopted if changed else looked.kept
        if plan is not None:
            self.problem = replace(self.problem, running=held_by(plan))
        self.all.append(looked)
        return looked

    def looks(self, count: int, **window: object) -> list[Reconciled]:
        return [self.look(**window) for _ in range(count)]

    @property
    def moves(self) -> list[tuple[int, str, str]]:
        """List (look, task, action) of everything that was changed so far."""
        return [
            (number, move.task, move.action)
            for number, looked in enumerate(self.all)
            if looked.decision.plan is not None
            for move in looked.decision.moves
        ]

    def gpus(self, task: str) -> int:
        held = next((each for each in self.problem.running if each.task == task), None)
        return 0 if held is None else len({g for role in held.roles for gpus in role.replicas for g in gpus})


EAGER = policy(stay={"task_s": 0.0}, rule={"looks_up": 1, "looks_down": 1})


def two_tasks(gpus: int = 8) -> Problem:
    """Return two tasks that share the GPUs; the second makes more of them."""
    return running_best(world(gpus, [scaling("a", 100.0, 0.7, gpus), scaling("b", 100.0, 0.8, gpus)]))


def training(problem: Problem, name: str) -> Problem:
    """Let a task's role be one that trains, so that its checkpoint counts."""

    def of(task):
        return (
            replace(task, roles=tuple(replace(r, kind="actor_train") for r in task.roles))
            if task.id == name
            else task
        )

    return replace(problem, tasks=tuple(map(of, problem.tasks)))


def shifted_world() -> Problem:
    """Let a plan run that is far from the best: the heavier task has one GPU of eight."""
    a, b = scaling("a", 100.0, 0.9, 8), scaling("b", 100.0, 0.9, 8)
    running = running_best(world(8, [replace(a, min_gpus=7, max_gpus=7), replace(b, max_gpus=1)]))
    return replace(running, tasks=(a, replace(b, weight=9.0)))
