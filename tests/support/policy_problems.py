"""Hypothesis strategies for problems whose tasks have one role, so small that all plans can be listed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import (
    Coupling,
    CouplingKind,
    Deadline,
    IncumbentRole,
    IncumbentTask,
    Policy,
    Problem,
    Quota,
    Role,
    StageOption,
    Task,
)

PRICES = (("a", 2.0), ("b", 0.5))


def option(seconds: float, replicas: int = 1, *, tp: int = 1, gpu_class: str = "a") -> StageOption:
    time_s = Estimate(seconds, seconds, seconds, "s", Origin.MEASURED)
    return StageOption(gpu_class, Layout(tp=tp), replicas, time_s, 600.0, 300.0, 10.0, 0.0, None, None)


def task(name: str, *options: StageOption, **more: Any) -> Task:
    more.setdefault("weight", 1.0)
    return Task(name, roles=(Role("r", "rollout", options),), coupling=Coupling(CouplingKind.SYNC), **more)


def lab(*sizes: int, classes: str = "", prices: tuple[tuple[str, float], ...] = PRICES) -> Cluster:
    """Make a cluster of nodes of some sizes; `classes` names each node's GPU class."""
    nodes = tuple(
        Node(
            f"n{at}",
            tuple(Gpu(GpuId(f"n{at}", i), classes[at] if classes else "a", 1000.0) for i in range(size)),
        )
        for at, size in enumerate(sizes)
    )
    return Cluster("lab", nodes, price_per_gpu_hour=prices)


def held_by(plan: Plan) -> tuple[IncumbentTask, ...]:
    """Make a plan the running one."""
    return tuple(
        IncumbentTask(
            running.task,
            tuple(
                IncumbentRole(role.role, role.choice.layout, role.replicas, role.role)
                for role in running.roles
            ),
        )
        for running in plan.running
    )


tenths = st.integers(5, 60).map(lambda number: number / 10)


@st.composite
def tasks_of(draw: st.DrawFn, name: str, classes: str, wide: bool = True) -> Task:
    """Draw a task with two to four ways to run; that called t0 runs on a single GPU too."""
    work, decline = draw(tenths), draw(st.sampled_from([0.5, 0.8, 1.0, 1.1]))
    sizes = [1, 2] if wide else [1]
    forms = draw(
        st.lists(
            st.tuples(st.sampled_from(sorted(set(classes))), st.sampled_from(sizes), st.integers(1, 3)),
            min_size=2, max_size=4, unique=True,
        )
    )  # fmt: skip
    if name == "t0" and (classes[0], 1, 1) not in forms:
        forms.append((classes[0], 1, 1))
    options = [
        option(round(work / (tp * n) ** decline * (0.7 if gpu_class == "b" else 1.0), 3), n, tp=tp,
               gpu_class=gpu_class)
        for gpu_class, tp, n in forms
    ]  # fmt: skip
    return task(name, *options, weight=draw(st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.5])))


@st.composite
def problems(draw: st.DrawFn, policy: Policy, wide: bool = True, most_tasks: int = 4) -> Problem:
    """Draw a problem of two to four tasks on three to six GPUs."""
    sizes, classes = draw(
        st.sampled_from(
            [((4,), "a"), ((2, 2), "aa"), ((4, 2), "aa"), ((3, 2), "ab"), ((3,), "a"), ((2, 4), "ba")]
        )
    )
    if not wide:
        sizes, classes = (draw(st.integers(3, 6)),), "a"
    names = [f"t{number}" for number in range(draw(st.integers(2, most_tasks)))]
    return Problem(
        lab(*sizes, classes=classes),
        tuple(draw(tasks_of(name, classes, wide)) for name in names),
        policy=policy,
        horizon_s=1000.0,
    )


def each_task(problem: Problem, changes: list[dict[str, Any]]) -> Problem:
    changed = (replace(one, **more) for one, more in zip(problem.tasks, changes, strict=True))
    return replace(problem, tasks=tuple(changed))


@st.composite
def with_deadlines(draw: st.DrawFn, policy: Policy = Policy.THROUGHPUT) -> Problem:
    problem = draw(problems(policy))
    changes: list[dict[str, Any]] = []
    for _ in problem.tasks:
        steps = float(draw(st.integers(1, 12)))
        kind = draw(st.sampled_from(["none", "deadline", "rate"]))
        changes.append({} if kind == "none" else {"deadline": Deadline(steps, 10.0)} if kind == "deadline"
                       else {"min_steps_per_s": steps / 10.0})  # fmt: skip
    return each_task(problem, changes)


@st.composite
def with_quotas(draw: st.DrawFn, wide: bool = True) -> Problem:
    """Draw teams of tasks; the quotas together are no more than the cluster has."""
    problem = draw(problems(Policy.FAIR_SHARE, wide))
    changes = [{"team": draw(st.sampled_from(["red", "blue", None]))} for _ in problem.tasks]
    gpus = len(problem.cluster.gpus)
    red = draw(st.integers(0, gpus))
    scarce = (("b", 1),) if "b" in problem.cluster.gpu_classes and draw(st.booleans()) else ()
    quotas = (Quota("red", red, scarce), Quota("blue", draw(st.integers(0, gpus - red))))
    return replace(each_task(problem, changes), quotas=quotas)
