"""The solver against the oracle that tries everything, on small random problems."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracle import best_levels, best_throughput, reference
from oracle_configurations import fewest_bins, shapes
from random_problems import (
    clusters_in_domains,
    random_problem,
    with_mixes,
    with_running,
    with_seats,
)

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import (
    Arrangement,
    Coupling,
    CouplingKind,
    IncumbentRole,
    IncumbentTask,
    Policy,
    Problem,
    Role,
    StageOption,
    Task,
)
from libra_plan.planner.verify import violations_of
from libra_plan.planner.verify.bound import Table

pytestmark = pytest.mark.slow

EXACT = SolveParams(gap=0.0, time_limit_s=20.0)
NEAR = 2e-6  # CP-SAT counts worth in millionths of the largest
EACH = 20  # problems per test


def solved(problem: Problem) -> Plan | None:
    plan = solve_problem(problem, EXACT).plan
    if plan is not None:
        assert violations_of(problem, plan) == []
    return plan


def check_throughput(problem: Problem, name: str) -> Plan | None:
    plan = solved(problem)
    best = best_throughput(problem)
    if plan is None:
        assert best == 0.0, f"{name}: the solver has no plan, the oracle one worth {best}"
        return None
    assert plan.certificate.objective == pytest.approx(best, rel=NEAR, abs=NEAR), name
    assert plan.certificate.bound >= best * (1 - 1e-9), name
    return plan


def check_levels(problem: Problem, name: str) -> Plan | None:
    plan = solved(problem)
    levels, worth = best_levels(problem)
    if plan is None:
        assert max(levels) == 0.0, f"{name}: the solver has no plan, the oracle {levels}"
        return None
    reached = sorted([task.normalised for task in plan.running] + [0.0] * len(plan.queued))
    assert reached == pytest.approx(levels, rel=NEAR), name
    assert _worth(problem, plan) == pytest.approx(worth, rel=NEAR), name
    return plan


def _worth(problem: Problem, plan: Plan) -> float:
    total = 0.0
    for running in plan.running:
        task = problem.task_of[running.task]
        kept = max(0.01, 1.0 - task.restart_s / problem.horizon_s) if running.moved else 1.0
        total += task.weight * running.normalised * kept
    return total


@pytest.mark.parametrize("first", range(0, 240, EACH))
def test_throughput_is_the_best_there_is(first: int) -> None:
    """No choice, placement or replan may be better than the one the solver calls optimal."""
    for seed in range(first, first + EACH):
        problem = random_problem(seed)
        plan = check_throughput(problem, f"problem {seed}")
        if plan is not None and seed % 2:
            check_throughput(with_running(problem, plan, seed), f"problem {seed} replanned")


@pytest.mark.parametrize("first", range(7000, 7080, EACH))
def test_domains_and_racks_cost_nothing_but_what_they_forbid(first: int) -> None:
    """No replica may cross the border of a domain, racks forbid nothing, and the best is still found."""
    for seed in range(first, first + EACH):
        problem = random_problem(seed, cluster=clusters_in_domains(seed))
        plan = check_throughput(problem, f"problem {seed}")
        if plan is not None and seed % 2:
            check_throughput(with_running(problem, plan, seed), f"problem {seed} replanned")


@pytest.mark.parametrize("first", range(8000, 8080, EACH))
def test_replicas_of_several_sizes_are_packed_as_well_as_can_be(first: int) -> None:
    """An option that mixes layouts takes blocks of its largest replica, the others inside them."""
    for seed in range(first, first + EACH):
        problem = with_mixes(random_problem(seed), seed)
        plan = check_throughput(problem, f"problem {seed}")
        if plan is not None and seed % 2:
            check_throughput(with_running(problem, plan, seed), f"problem {seed} replanned")


@pytest.mark.parametrize("first", range(9000, 9080, EACH))
def test_roles_on_shared_gpus_are_placed_as_well_as_can_be(first: int) -> None:
    """Seats are GPUs of a class of their own beside whole ones of their node, for one task each."""
    seated = 0
    for seed in range(first, first + EACH):
        problem = with_seats(random_problem(seed), seed)
        plan = check_throughput(problem, f"problem {seed}")
        seated += plan is not None and any(gpu.index >= 1000 for run in plan.running for gpu in run.gpus)
        if plan is not None and seed % 2:
            check_throughput(with_running(problem, plan, seed), f"problem {seed} replanned")
    assert seated


@pytest.mark.parametrize("first", range(5000, 5120, EACH))
def test_max_min_raises_every_level_as_far_as_it_goes(first: int) -> None:
    """Queued tasks count as 0, and what is left over still goes to the next worst task."""
    for seed in range(first, first + EACH):
        problem = random_problem(seed, Policy.MAX_MIN)
        plan = check_levels(problem, f"problem {seed}")
        if plan is not None and seed % 3 == 0:
            check_levels(with_running(problem, plan, seed), f"problem {seed} replanned")


def test_the_verifier_and_the_oracle_agree_on_fair_shares() -> None:
    """Both write the reference down on their own; a difference is a mistake of one of them."""
    compared = 0
    for seed in range(300, 360):
        problem = random_problem(seed)
        for task in problem.tasks:
            assert Table(problem).reference(task) == pytest.approx(reference(problem, task)), seed
            compared += 1
    assert compared > 60


# ---------------------------------------------------------------- the oracle on cases done by hand


def option(seconds: float, gpus: int = 1, replicas: int = 1, peak: float = 600.0, static: float = 300.0,
           sleep_s: float | None = 0.5) -> StageOption:  # fmt: skip
    time_s = Estimate(seconds, seconds, seconds, "s", Origin.MEASURED)
    return StageOption("a", Layout(tp=gpus), replicas, time_s, peak, static, 10.0, 0.0, sleep_s, sleep_s)


def task(*roles: Role, name: str = "t", kind: CouplingKind = CouplingKind.SYNC, **more: object) -> Task:
    return Task(name, 1.0, roles, Coupling(kind), **more)  # type: ignore[arg-type]


def lab(*sizes: int) -> Cluster:
    return Cluster(
        "lab",
        tuple(
            Node(f"n{at}", tuple(Gpu(GpuId(f"n{at}", index), "a", 1000.0) for index in range(size)))
            for at, size in enumerate(sizes)
        ),
    )


def test_two_equal_tasks_share_two_gpus() -> None:
    """Each alone on its fair share of one GPU is worth 1; together 2."""
    one = task(Role("r", "rollout", (option(4.0),)), name="one")
    two = replace(one, id="two")
    assert best_throughput(Problem(lab(2), (one, two))) == pytest.approx(2.0)
    assert best_levels(Problem(lab(2), (one, two)))[0] == pytest.approx((1.0, 1.0))


def test_a_queued_task_counts_as_nothing() -> None:
    """On one GPU with two tasks one waits: its share of half a GPU makes the other worth 2."""
    one = task(Role("r", "rollout", (option(4.0),)), name="one")
    assert best_throughput(Problem(lab(1), (one, replace(one, id="two")))) == pytest.approx(2.0)
    assert best_levels(Problem(lab(1), (one, replace(one, id="two"))))[0] == pytest.approx((0.0, 2.0))


def test_a_replica_of_two_gpus_is_not_cut_by_nodes() -> None:
    """Two nodes of one GPU cannot hold it, whatever they have together... unless it fills them."""
    alone = task(Role("r", "rollout", (option(4.0, gpus=2),)))
    assert best_throughput(Problem(lab(3, 1), (alone,))) == pytest.approx(1.0)
    assert best_throughput(Problem(lab(1, 1), (alone,))) == pytest.approx(1.0)
    wide = task(Role("r", "rollout", (option(4.0, gpus=4),)))
    assert best_throughput(Problem(lab(3, 1), (wide,))) == 0.0


def test_roles_in_turn_need_memory_for_what_the_others_keep() -> None:
    """600 + 300 MiB fit in 1000; 800 + 300 do not, unless one sleeps (1 s each)."""
    small, large = option(4.0), option(4.0, peak=800.0)
    roles = (Role("a", "rollout", (small,)), Role("b", "rollout", (small,)))
    colocated = frozenset({Arrangement.COLOCATED})
    fits = Problem(lab(1), (task(*roles, arrangements=colocated),))
    assert reference(fits, fits.tasks[0]) == pytest.approx(1 / 8)
    tight = (Role("a", "rollout", (large,)), Role("b", "rollout", (large,)))
    sleeps = Problem(lab(1), (task(*tight, arrangements=colocated),))
    assert reference(sleeps, sleeps.tasks[0]) == pytest.approx(1 / 10)
    awake = tuple(replace(role, options=(option(4.0, peak=800.0, sleep_s=None),)) for role in tight)
    never = Problem(lab(1), (task(*awake, arrangements=colocated),))
    assert reference(never, never.tasks[0]) is None


def test_coupling_adds_or_overlaps_pools() -> None:
    """Times 4 and 6 on two GPUs: in turn 10, at once 6, in two groups 5 + 3; hand-over 1 each."""
    roles = (Role("a", "rollout", (option(4.0),)), Role("b", "rollout", (option(6.0),)))
    for coupling, seconds in (
        (Coupling(CouplingKind.SYNC), 10.0),
        (Coupling(CouplingKind.ASYNC, staleness=1), 6.0),
        (Coupling(CouplingKind.PIPELINED, groups=2), 8.0),
    ):
        apart = Task("t", 1.0, roles, coupling, frozenset({Arrangement.SEPARATE}), sync_s=1.0)
        problem = Problem(lab(2), (apart,))
        assert reference(problem, apart) == pytest.approx(1 / (seconds + 1.0))


def test_moving_costs_its_part_of_the_horizon() -> None:
    """Kept, the task is worth 1; twice as fast but moved at half the horizon it is worth no more."""
    slow, fast = option(4.0), option(2.0, replicas=2)
    role = Role("r", "rollout", (slow, fast))
    held = IncumbentTask("t", (IncumbentRole("r", Layout(), ((GpuId("n0", 0),),), "r"),))
    for restart_s, worth in ((0.0, 1.0), (400.0, 0.6), (600.0, 0.5)):
        alone = task(role, restart_s=restart_s)
        problem = Problem(lab(2), (alone,), running=(held,), horizon_s=1000.0)
        assert best_throughput(problem) == pytest.approx(worth)


def test_workers_need_cores_on_some_node() -> None:
    """Three workers of two cores each fit nodes of four and two cores, not of five and one."""
    env = Role("env", "env", cpu_workers=3, cpu_cores=6.0)
    one = task(Role("r", "rollout", (option(4.0),)), env)
    for cores, worth in (((4.0, 2.0), 1.0), ((5.0, 1.0), 0.0), ((None, 6.0), 1.0)):
        nodes = tuple(replace(n, cpu_cores=c) for n, c in zip(lab(1, 1).nodes, cores, strict=True))
        assert best_throughput(Problem(Cluster("lab", nodes), (one,))) == pytest.approx(worth)


def test_shapes_are_counted_as_by_hand() -> None:
    """Three roles: 5 partitions in one phase, and 2 of two phases with one pool beside another."""
    roles = tuple(Role(name, "rollout", (option(1.0),)) for name in "abc")
    assert len(list(shapes(task(*roles)))) == 7
    assert len(list(shapes(task(*roles, kind=CouplingKind.PIPELINED)))) == 6  # without a+c | b
    assert len(list(shapes(task(*roles, arrangements=frozenset({Arrangement.HYBRID}))))) == 5


def test_blocks_pack_without_waste_where_they_can() -> None:
    """4+3+3+2+2+2 fill two blocks of 8, which taking the largest first does not find."""
    assert fewest_bins((4, 3, 3, 2, 2, 2), 8, (8,)) == 2
    assert fewest_bins((3, 3), 8, (4, 4)) == 1
    assert fewest_bins((3, 3, 3), 8, (4, 4)) == 2
