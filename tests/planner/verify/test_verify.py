"""The verifier on plans that hold and on plans that were tampered with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.rollout.streaming import Stream
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.plan import (
    Certificate,
    Configuration,
    CpuShare,
    MemoryMode,
    Phase,
    PlacedRole,
    Plan,
    Pool,
    QueuedTask,
    RoleChoice,
    RunningTask,
    Status,
)
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
from libra_plan.planner.verify import Violation, violations_of

# Two nodes of four GPUs. `rl` trains and scores in turn on n0 (asleep in between) beside a rollout
# on n1; `eval` has what is left of n1; `idle` needs nine GPUs and waits.


def option(seconds: float, gpus: int, replicas: int, peak: float, static: float) -> StageOption:
    time_s = Estimate(seconds, 0.9 * seconds, 1.2 * seconds, "s", Origin.MEASURED)
    return StageOption("a", Layout(tp=gpus), replicas, time_s, peak, static, 50.0, 40.0, 0.25, 0.75)


TRAIN, SCORE, ROLL, EVAL, HUGE = (
    option(8.0, 2, 2, 900.0, 400.0),
    option(2.0, 1, 2, 700.0, 200.0),
    option(9.0, 2, 1, 800.0, 500.0),
    option(3.0, 1, 1, 500.0, 300.0),
    option(3.0, 1, 9, 500.0, 300.0),
)
NODES = tuple(
    Node(name, tuple(Gpu(GpuId(name, at), "a", 1000.0) for at in range(4)), None, 16.0, 1000.0)
    for name in ("n0", "n1")
)
RL = Task(
    "rl",
    2.0,
    (
        Role("train", "actor_train", (TRAIN,), cpu_cores_per_gpu=2.0, host_memory_mib_per_gpu=10.0),
        Role("score", "reference", (SCORE,), cpu_cores_per_gpu=1.0),
        Role("env", "env", cpu_workers=2, cpu_cores=6.0, host_memory_mib=100.0),
        Role("roll", "rollout", (ROLL,), cpu_cores_per_gpu=1.0, excluded_gpus=frozenset({GpuId("n1", 3)})),
    ),
    Coupling(CouplingKind.ASYNC, staleness=1),
    sync_s=0.5,
    restart_s=100.0,
)
EVALUATE = Task("eval", 1.0, (Role("roll", "rollout", (EVAL,), pinned_gpus=frozenset({GpuId("n1", 3)})),),
                Coupling(CouplingKind.SYNC))  # fmt: skip
IDLE = Task("idle", 1.0, (Role("roll", "rollout", (HUGE,)),), Coupling(CouplingKind.SYNC))
HELD = IncumbentTask(
    "rl", (IncumbentRole("train", Layout(tp=2), ((GpuId("n0", 0), GpuId("n0", 1)),), "train"),)
)
PROBLEM = Problem(Cluster("lab", NODES), (RL, EVALUATE, IDLE), running=(HELD,), horizon_s=1000.0)


def gpus(node: str, *indices: int) -> tuple[GpuId, ...]:
    return tuple(GpuId(node, index) for index in indices)


def plan() -> Plan:
    """Write the plan down: step 8 + 2 + 2 switches of 1 s against 9 s at once, + 0.5 s to hand over.

    Fair share of `rl`: 8·2/4 = 4 GPUs, on which it runs colocated asleep: 8 + 2 + 9 + 3 = 22 s.
    `eval` on its 2 GPUs takes the same 3 s.
    """
    train, score, roll = (RoleChoice(*each) for each in (("train", TRAIN), ("score", SCORE), ("roll", ROLL)))
    host = 10.0 + 40.0 + 40.0
    shared = Pool("a", (train, score), 2, 2, MemoryMode.SLEEP, 950.0, 3.0, host)
    beside = Pool("a", (roll,), 2, 1, MemoryMode.RESIDENT, 800.0, 1.0, 0.0)
    step = Estimate(12.5, 11.5, 14.5, "s", Origin.MEASURED)
    configuration = Configuration("rl", (Phase((shared, beside)),), step, (("a", 2, 3),), 950.0)
    rl = RunningTask(
        "rl",
        configuration,
        (
            PlacedRole("train", train, (gpus("n0", 0, 1), gpus("n0", 2, 3))),
            PlacedRole("score", score, (gpus("n0", 0), gpus("n0", 2))),
            PlacedRole("roll", roll, (gpus("n1", 0, 1),)),
        ),
        (CpuShare("env", "n0", 1), CpuShare("env", "n1", 1)),
        22.0 / 12.5,
        moved=True,
    )
    choice = RoleChoice("roll", EVAL)
    pool = Pool("a", (choice,), 1, 1, MemoryMode.RESIDENT, 500.0)
    alone = Configuration("eval", (Phase((pool,)),), EVAL.time_s, (("a", 1, 1),), 500.0)
    evaluate = RunningTask("eval", alone, (PlacedRole("roll", choice, (gpus("n1", 3),)),), (), 1.0)
    worth = 2.0 * 22.0 / 12.5 * 0.9 + 1.0
    proof = Certificate("throughput", Status.FEASIBLE, worth, worth + 0.01, 0.01 / worth,
                        (("lp", worth + 0.01),), (("greedy", worth - 0.5),))  # fmt: skip
    return Plan((rl, evaluate), (QueuedTask("idle", "capacity", "needs 9 GPUs"),), proof)


def in_rl(**changes: Any) -> Plan:
    """Change fields of the running task `rl`."""
    valid = plan()
    return replace(valid, running=(replace(valid.running[0], **changes), valid.running[1]))


def in_configuration(**changes: Any) -> Plan:
    return in_rl(configuration=replace(plan().running[0].configuration, **changes))


def in_pool(number: int, **changes: Any) -> Plan:
    pools = list(plan().running[0].configuration.phases[0].pools)
    pools[number] = replace(pools[number], **changes)
    return in_configuration(phases=(Phase(tuple(pools)),))


def with_gpus(role: str, *replicas: tuple[GpuId, ...]) -> Plan:
    """Move a role of `rl`."""
    roles = (
        replace(each, replicas=replicas) if each.role == role else each for each in plan().running[0].roles
    )
    return in_rl(roles=tuple(roles))


def in_proof(**changes: Any) -> Plan:
    return replace(plan(), certificate=replace(plan().certificate, **changes))


def renamed_option(**changes: Any) -> Plan:
    """Use an option the problem does not have, in configuration and placement alike."""
    valid = plan().running[0]
    choice = RoleChoice("roll", replace(ROLL, **changes))
    pools = (
        valid.configuration.phases[0].pools[0],
        replace(valid.configuration.phases[0].pools[1], choices=(choice,)),
    )
    roles = (*valid.roles[:2], replace(valid.roles[2], choice=choice))
    return in_rl(configuration=replace(valid.configuration, phases=(Phase(pools),)), roles=roles)


def in_problem(task: int, **changes: Any) -> Problem:
    tasks = list(PROBLEM.tasks)
    tasks[task] = replace(tasks[task], **changes)
    return replace(PROBLEM, tasks=tuple(tasks))


def in_role(task: int, role: int, **changes: Any) -> Problem:
    roles = list(PROBLEM.tasks[task].roles)
    roles[role] = replace(roles[role], **changes)
    return in_problem(task, roles=tuple(roles))


def in_node(**changes: Any) -> Problem:
    return replace(PROBLEM, cluster=Cluster("lab", (replace(NODES[0], **changes), NODES[1])))


def codes(found: list[Violation]) -> set[str]:
    return {violation.code for violation in found}


def test_a_valid_plan_has_no_violation() -> None:
    """Everything below changes one thing of this plan, so this plan must hold."""
    assert violations_of(PROBLEM, plan()) == []


VALID = plan()
TAMPERED: list[tuple[str, Callable[[], Plan]]] = [
    ("task-missing", lambda: replace(VALID, queued=())),
    ("task-twice", lambda: replace(VALID, queued=(*VALID.queued, QueuedTask("rl", "worth", "x")))),
    ("unknown-task", lambda: replace(VALID, queued=(*VALID.queued, QueuedTask("other", "worth", "x")))),
    ("task-order", lambda: replace(VALID, running=VALID.running[::-1])),
    ("no-reason", lambda: replace(VALID, queued=(QueuedTask("idle", "capacity", ""),))),
    ("wrong-configuration", lambda: in_configuration(task="eval")),
    ("roles", lambda: in_rl(roles=VALID.running[0].roles[:2])),
    ("roles", lambda: in_pool(0, choices=VALID.running[0].configuration.phases[0].pools[0].choices[:1])),
    ("unknown-option", lambda: renamed_option(peak_mib=1.0)),
    ("choice", lambda: in_pool(1, choices=(RoleChoice("roll", replace(ROLL, peak_mib=1.0)),))),
    ("empty-pool", lambda: in_configuration(phases=(*VALID.running[0].configuration.phases, Phase(())))),
    ("gpu-shared", lambda: with_gpus("roll", gpus("n1", 2, 3))),
    ("pools-overlap", lambda: with_gpus("roll", gpus("n0", 2, 3))),
    ("straddles", lambda: with_gpus("train", (GpuId("n0", 0), GpuId("n1", 2)), gpus("n0", 2, 3))),
    ("unknown-gpu", lambda: with_gpus("roll", gpus("n1", 1, 7))),
    ("gpu-twice", lambda: with_gpus("train", gpus("n0", 0, 1), gpus("n0", 1, 2))),
    ("replicas", lambda: with_gpus("train", gpus("n0", 0, 1))),
    ("replica-size", lambda: with_gpus("train", gpus("n0", 0, 1, 2), gpus("n0", 3))),
    ("too-many-gpus", lambda: with_gpus("score", gpus("n0", 0), gpus("n1", 2))),
    ("excluded", lambda: with_gpus("roll", gpus("n1", 2, 3))),
    ("blocks", lambda: in_pool(0, block_gpus=4, blocks=1)),
    ("blocks", lambda: in_configuration(blocks=(("a", 2, 2),))),
    ("blocks", lambda: in_pool(0, blocks=3)),
    ("gpu-class", lambda: in_pool(1, gpu_class="b")),
    ("step-time", lambda: in_configuration(step_time_s=Estimate(12.0, 11.5, 14.5, "s", Origin.MEASURED))),
    ("step-time", lambda: in_configuration(step_time_s=Estimate(12.5, 12.0, 14.5, "s", Origin.MEASURED))),
    ("step-time", lambda: in_configuration(step_time_s=Estimate(12.5, 11.5, 14.0, "s", Origin.MEASURED))),
    ("memory", lambda: in_pool(0, memory_mode=MemoryMode.RESIDENT)),
    ("memory-told", lambda: in_configuration(peak_mib=900.0)),
    ("mode", lambda: in_pool(1, memory_mode=MemoryMode.SLEEP)),
    ("host-told", lambda: in_pool(0, cpu_cores_per_gpu=1.0)),
    ("host-told", lambda: in_pool(0, host_memory_mib_per_gpu=10.0)),
    ("cpu-cores", lambda: in_rl(cpu=(CpuShare("env", "n0", 2),))),
    ("workers", lambda: in_rl(cpu=(CpuShare("env", "n0", 1),))),
    ("workers", lambda: in_rl(cpu=(CpuShare("env", "n0", 3), CpuShare("env", "n1", -1)))),
    ("workers", lambda: in_rl(cpu=(*VALID.running[0].cpu, CpuShare("train", "n1", 1)))),
    ("unknown-node", lambda: in_rl(cpu=(CpuShare("env", "n0", 1), CpuShare("env", "n7", 1)))),
    ("normalised", lambda: in_rl(normalised=2.0)),
    ("normalised", lambda: in_rl(normalised=float("nan"))),
    ("moved", lambda: in_rl(moved=False)),
    ("objective", lambda: in_proof(objective=VALID.certificate.objective + 0.001)),
    ("bound", lambda: in_proof(bound=VALID.certificate.objective - 0.001, bounds=())),
    ("bound", lambda: in_proof(bounds=(("lp", VALID.certificate.bound - 0.001),))),
    ("gap", lambda: in_proof(gap=0.0)),
    ("status", lambda: in_proof(status=Status.OPTIMAL)),
    ("policy", lambda: in_proof(policy="max-min")),
    ("baseline", lambda: in_proof(baselines=(("greedy", VALID.certificate.objective + 0.001),))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "change"), TAMPERED, ids=[f"{n}-{code}" for n, (code, _) in enumerate(TAMPERED)]
)
def test_a_plan_that_was_tampered_with_is_caught(code: str, change: Callable[[], Plan]) -> None:
    """A check that nothing trips is not a check: each is shown the one fault it is for."""
    assert code in codes(violations_of(PROBLEM, change()))


OTHER_PROBLEMS: list[tuple[str, Callable[[], Problem]]] = [
    ("role-limit", lambda: in_role(0, 0, max_gpus=3)),
    ("role-limit", lambda: in_role(0, 0, min_gpus=5)),
    ("pinned", lambda: in_role(1, 0, pinned_gpus=frozenset({GpuId("n1", 2)}))),
    ("excluded", lambda: in_role(0, 1, excluded_gpus=frozenset({GpuId("n0", 1)}))),  # train's pool too
    ("task-limit", lambda: in_problem(0, max_gpus=5)),
    ("task-limit", lambda: in_problem(0, min_gpus=7)),
    ("arrangement", lambda: in_problem(0, arrangements=frozenset({Arrangement.COLOCATED}))),
    ("pool", lambda: in_problem(0, roles_fill_pools=True)),
    ("stage-order", lambda: in_problem(0, coupling=Coupling(CouplingKind.PIPELINED, groups=2),
                                       roles=(RL.roles[0], RL.roles[3], RL.roles[1], RL.roles[2]))),
    ("step-time", lambda: in_problem(0, coupling=Coupling(CouplingKind.SYNC))),
    ("step-time", lambda: in_problem(0, sync_s=0.0)),
    ("cpu-cores", lambda: in_node(cpu_cores=14.9)),  # 4 GPUs × 3 and a worker of 3
    ("cpu-cores", lambda: in_node(cpu_cores=None)),
    ("host-memory", lambda: in_node(host_memory_mib=409.0)),  # 4 GPUs × 90 and a worker of 50
    ("unknown-gpu", lambda: in_node(gpus=NODES[0].gpus[:3])),
    ("memory", lambda: in_node(gpus=tuple(replace(gpu, memory_mib=949.0) for gpu in NODES[0].gpus))),
    ("objective", lambda: in_problem(0, restart_s=200.0)),
    ("objective", lambda: replace(PROBLEM, horizon_s=500.0)),
    ("policy", lambda: replace(PROBLEM, policy=Policy.MAX_MIN)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "problem"), OTHER_PROBLEMS, ids=[f"{n}-{code}" for n, (code, _) in enumerate(OTHER_PROBLEMS)]
)
def test_a_plan_of_another_problem_is_caught(code: str, problem: Callable[[], Problem]) -> None:
    """Limits, prices and nodes are read from the problem, never from the plan."""
    assert code in codes(violations_of(problem(), plan()))


def test_nodes_are_checked_to_the_brim() -> None:
    """What just fits must not be called a violation, or the solver would waste a core per node."""
    assert violations_of(in_node(cpu_cores=15.0, host_memory_mib=410.0), plan()) == []


def test_a_replica_may_span_nodes_that_it_fills() -> None:
    """Whole nodes are how a replica larger than a node is placed; a part of one is not."""
    wide = option(4.0, 4, 1, 500.0, 300.0)
    task = Task("wide", 1.0, (Role("roll", "rollout", (wide,)),), Coupling(CouplingKind.SYNC))
    nodes = tuple(
        Node(f"m{at}", tuple(Gpu(GpuId(f"m{at}", i), "a", 1000.0) for i in range(2))) for at in range(3)
    )
    problem = Problem(Cluster("lab", nodes), (task,))
    choice = RoleChoice("roll", wide)
    pool = Pool("a", (choice,), 4, 1, MemoryMode.RESIDENT, 500.0)
    configuration = Configuration("wide", (Phase((pool,)),), wide.time_s, (("a", 4, 1),), 500.0)

    def on(*where: GpuId) -> list[Violation]:
        running = RunningTask("wide", configuration, (PlacedRole("roll", choice, (where,)),), (), 1.0)
        return violations_of(
            problem, Plan((running,), (), Certificate("throughput", Status.OPTIMAL, 1.0, 1.0, 0.0))
        )

    assert on(*gpus("m0", 0, 1), *gpus("m2", 0, 1)) == []
    assert codes(on(*gpus("m0", 0, 1), GpuId("m1", 0), GpuId("m2", 0))) == {"straddles"}


def test_a_task_kept_as_it_is_has_not_moved() -> None:
    """The restart is charged by what changed, not by what the plan says of it."""
    held = IncumbentTask(
        "rl", tuple(IncumbentRole(r.role, r.choice.layout, r.replicas, "g") for r in plan().running[0].roles)
    )
    kept = replace(PROBLEM, running=(held,))
    assert {"moved", "objective"} <= codes(violations_of(kept, plan()))
    worth = 2.0 * 22.0 / 12.5 + 1.0
    proof = replace(plan().certificate, objective=worth, bound=worth, gap=0.0, bounds=(), baselines=())
    assert violations_of(kept, replace(in_rl(moved=False), certificate=proof)) == []


def test_phases_on_the_same_gpus_keep_what_the_other_phase_left() -> None:
    """Train and score side by side, then roll over both: 900 MiB + 500 MiB of the other phase is too much."""
    task = replace(
        RL, roles=(RL.roles[0], RL.roles[1], replace(RL.roles[3], excluded_gpus=frozenset())), sync_s=0.0
    )
    train, score, roll = (RoleChoice(*each) for each in (("train", TRAIN), ("score", SCORE), ("roll", ROLL)))

    def planned(mode: MemoryMode, seconds: float, peak: float, host: float) -> list[Violation]:
        pools = (
            Pool("a", (train,), 2, 2, mode, 900.0, 2.0, 10.0 + host),
            Pool("a", (score,), 1, 2, mode, 700.0, 1.0, host),
            Pool("a", (roll,), 2, 1, mode, 800.0, 1.0, host),
        )
        low, high = seconds - 1.7, seconds + 3.4
        step = Estimate(seconds, low, high, "s", Origin.MEASURED)
        configuration = Configuration("rl", (Phase(pools[:2]), Phase(pools[2:])), step, (("a", 2, 3),), peak)
        roles = (
            PlacedRole("train", train, (gpus("n0", 0, 1), gpus("n0", 2, 3))),
            PlacedRole("score", score, (gpus("n1", 0), gpus("n1", 1))),
            PlacedRole("roll", roll, (gpus("n0", 0, 1),)),
        )
        running = RunningTask("rl", configuration, roles, (), reference / seconds)
        worth = 2.0 * reference / seconds
        proof = Certificate("throughput", Status.OPTIMAL, worth, worth, 0.0)
        return violations_of(
            Problem(Cluster("lab", NODES), (task,), horizon_s=1000.0), Plan((running,), (), proof)
        )

    reference = 9.5  # alone on all 8 GPUs, every role apart: two steps at most are in its three pools
    assert planned(MemoryMode.SLEEP, 19.0, 950.0, 40.0) == []
    assert codes(planned(MemoryMode.RESIDENT, 17.0, 1400.0, 0.0)) == {"memory"}


def test_a_role_that_never_pauses_has_its_gpus_to_itself() -> None:
    """An async rollout's price holds alone in its pool; in turns with another role it would drain."""
    stream = Stream(0.1, 0.1)
    beside = in_role(0, 3, options=(replace(ROLL, stream=stream),))
    assert "mode" not in codes(violations_of(beside, renamed_option(stream=stream)))
    choice = RoleChoice("train", replace(TRAIN, stream=stream))
    running = plan().running[0]
    first, second = running.configuration.phases[0].pools
    pools = (replace(first, choices=(choice, *first.choices[1:])), second)
    roles = (replace(running.roles[0], choice=choice), *running.roles[1:])
    taking_turns = in_rl(configuration=replace(running.configuration, phases=(Phase(pools),)), roles=roles)
    assert "mode" in codes(violations_of(in_role(0, 0, options=(choice.option,)), taking_turns))
