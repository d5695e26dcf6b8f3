"""Where placement puts tasks among racks and NVLink domains."""

from __future__ import annotations

from dataclasses import replace

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.problem import Coupling, CouplingKind, Problem, Role, StageOption, Task
from libra_plan.planner.verify import violations_of


def node(name: str, gpus: int, **where: str) -> Node:
    return Node(name, tuple(Gpu(GpuId(name, at), "a", 1000.0) for at in range(gpus)), **where)


def task(name: str, tp: int, replicas: int) -> Task:
    time_s = Estimate(4.0, 4.0, 4.0, "s", Origin.MEASURED)
    option = StageOption("a", Layout(tp=tp), replicas, time_s, 600.0, 300.0, 10.0, 0.0, None, None)
    return Task(name, 1.0, (Role("r", "rollout", (option,)),), Coupling(CouplingKind.SYNC))


def test_the_verifier_sees_a_replica_that_leaves_its_domain() -> None:
    """Whole nodes are not enough: those of two domains have no NVLink between them."""
    nodes = tuple(node(name, 2, nvlink_domain=name[0]) for name in ("x0", "x1", "y0", "y1"))
    problem = Problem(Cluster("domains", nodes), (task("t", 4, 1),))
    plan = solve_problem(problem, SolveParams(gap=0.0)).require_plan()
    (running,) = plan.running
    crossing = tuple(GpuId(name, at) for name in ("x0", "y0") for at in (0, 1))
    wrong = replace(running, roles=(replace(running.roles[0], replicas=(crossing,)),))
    assert "straddles" in {found.code for found in violations_of(problem, replace(plan, running=(wrong,)))}


def nodes_of(cluster: Cluster, *tasks: Task) -> dict[str, set[str]]:
    problem = Problem(cluster, tasks)
    plan = solve_problem(problem, SolveParams(gap=0.0)).require_plan()
    assert violations_of(problem, plan) == []
    return {running.task: {gpu.node for gpu in running.gpus} for running in plan.running}


def test_a_task_stays_in_one_rack_where_one_has_room() -> None:
    """Best fit alone would fill the half-empty node of one rack, then cross to the other."""
    cluster = Cluster("racks", (node("a0", 2, rack="x"), node("a1", 4, rack="y"), node("b1", 4, rack="y")))
    assert nodes_of(cluster, task("t", 2, 4))["t"] == {"a1", "b1"}


def test_a_task_that_fits_in_a_node_is_not_spread_over_two() -> None:
    """Its price counts on the links inside a node; the fullest node alone would take one replica of four."""
    cluster = Cluster("lab", (node("n0", 1), node("n1", 3), node("n2", 4), node("n3", 8)))
    assert nodes_of(cluster, task("t", 1, 4))["t"] == {"n2"}
    assert nodes_of(cluster, task("s", 1, 8))["s"] == {"n3"}
    assert nodes_of(cluster, task("u", 1, 12))["u"] == {"n2", "n3"}


def test_racks_are_swapped_when_best_fit_splits_a_task() -> None:
    """Two tasks of six GPUs and racks of six, listed so that nodes of both racks alternate."""
    nodes = tuple(node(f"{rack}{at}", 2, rack=rack) for at in range(3) for rack in "xy")
    found = nodes_of(Cluster("racks", nodes), task("s", 2, 3), task("t", 1, 6))
    assert [len({name[0] for name in names}) for names in found.values()] == [1, 1]


def test_a_wide_replica_does_not_leave_its_domain() -> None:
    """Nodes of two domains alternate; every replica of two nodes must get two of one domain."""
    nodes = tuple(node(f"{domain}{at}", 2, nvlink_domain=domain) for at in range(3) for domain in "xy")
    wide = task("t", 4, 2)
    found = nodes_of(Cluster("domains", nodes), wide)["t"]
    assert sorted(name[0] for name in found) in (["x", "x", "y", "y"],)
    three = replace(wide, roles=task("t", 4, 3).roles)
    assert solve_problem(Problem(Cluster("domains", nodes), (three,)), SolveParams()).plan is None
    together = tuple(replace(each, nvlink_domain="x") for each in nodes)
    assert len(nodes_of(Cluster("domains", together), three)["t"]) == 6
