"""Low-duty roles of different tasks on one GPU, from the cluster file to the launcher."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from affine_profile import profile_file
from pricing_cases import affine_fits

from libra_plan.errors import ClusterError, LaunchError, ManifestError, WorkloadError
from libra_plan.models.clusters import cluster_of, resolve_gpu
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Estimate, Origin
from libra_plan.models.topology import Cluster, GpuId, on_seat
from libra_plan.planner.launchers.agents import agents_of
from libra_plan.planner.launchers.base import find_emitter
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.check import check_manifest
from libra_plan.planner.launchers.document import placements_of
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan
from libra_plan.planner.pricing import price_workload
from libra_plan.planner.problem import Problem
from libra_plan.planner.runtime.gpus import check_visible
from libra_plan.planner.verify import violations_of
from libra_plan.profiles.catalog import LoadedProfile, ProfilesFolder, load_folder, shipped_folder
from libra_plan.profiles.cluster_checks import check_cluster
from libra_plan.profiles.document import Document
from libra_plan.profiles.place import Place
from libra_plan.profiles.role_checks import check_role
from libra_plan.profiles.schema import (
    ClusterFile,
    Fixed,
    GpuSpec,
    LayoutSpec,
    NodeSpec,
    Point,
    RoleSpec,
    SharedRate,
    TaskSpec,
    WorkloadFile,
    WorkSpec,
)

POINTS = (Point(batch_sequences=1, seq_len_tokens=512, time_s=1.0),)
SCORE = profile_file("score")
MEASURED = (
    SharedRate(a="a", b="b", rate_a=0.5, rate_b=0.4),
    SharedRate(a="a", b="a", rate_a=0.5, rate_b=0.5),
)
DOCUMENT = Document({}, "x.yaml")


def reward(**changes: object) -> RoleSpec:
    given = {"id": "reward", "kind": "reward", "profiles": (SCORE.id,), "layouts": (LayoutSpec(),)}
    return RoleSpec(**{**given, "shares_gpu": True, "command": ("reward.py",), **changes})  # type: ignore[arg-type]


WORKLOAD = WorkloadFile(
    schema_version=1,
    tasks=tuple(
        TaskSpec(
            id=name, work_per_step=WorkSpec(samples=32, prompt_tokens=Fixed(tokens=1000)), roles=(reward(),)
        )
        for name in ("one", "two")
    ),
)


def shared_cluster() -> Cluster:
    node = NodeSpec(
        id="n0",
        gpu_class="h200_sxm",
        gpu_memory_mib=140_000.0,
        gpus=(GpuSpec(index=7, uuid="GPU-7", shared=True),),
    )
    return cluster_of(ClusterFile(schema_version=1, nodes=(node,)))


def priced(workload: WorkloadFile = WORKLOAD, *, measured: bool = True) -> Problem:
    switching = load_folder(shipped_folder()).switching if measured else {}
    loaded = LoadedProfile(SCORE, POINTS, Path())
    folder = ProfilesFolder(Path(), workload, None, {SCORE.id: loaded}, switching, {})
    return price_workload(folder, shared_cluster(), fits=affine_fits(folder))


def planned() -> tuple[Problem, Plan]:
    problem = priced()
    return problem, solve_problem(problem, SolveParams(gap=0.0)).require_plan()


def test_a_neighbour_takes_what_was_measured() -> None:
    """The value counts on a busy neighbour, the bounds on an idle one and on the worst one seen."""
    alone = Estimate(10.0, 9.0, 12.0, "s", Origin.MEASURED)
    seat = on_seat(alone, MEASURED)
    assert (seat.value, seat.low, seat.high) == pytest.approx((20.0, 9.0, 30.0))
    assert seat.origin is Origin.EXTRAPOLATED


def test_the_shipped_measurements_halve_a_role() -> None:
    """On H200 each of two processes keeps 0.45 to 0.53 of its rate."""
    shared = load_folder(shipped_folder()).switching["h200_sxm"].shared_gpu
    seat = on_seat(Estimate(1.0, 1.0, 1.0, "s", Origin.MEASURED), shared)
    assert 1 / 0.53 < seat.value < 1 / 0.44
    assert seat.high == pytest.approx(1 / 0.445)


def test_two_tasks_sit_on_one_gpu() -> None:
    """Alone in the cluster, one GPU serves both; a whole GPU would leave one of them waiting."""
    problem, plan = planned()
    assert {running.task for running in plan.running} == {"one", "two"}
    assert {gpu for running in plan.running for gpu in running.gpus} == {GpuId("n0", 1007), GpuId("n0", 2007)}
    assert violations_of(problem, plan) == []


def test_a_role_has_one_replica_there_and_only_with_leave() -> None:
    """NCCL gives a GPU one rank; and who did not agree to a neighbour gets none."""
    options = priced().tasks[0].roles[0].options
    assert {(option.gpu_class, option.replicas) for option in options} == {("h200_sxm.seat", 1)}
    alone = msgspec.structs.replace(WORKLOAD.tasks[0], roles=(reward(shares_gpu=False),))
    assert priced(msgspec.structs.replace(WORKLOAD, tasks=(alone,))).tasks[0].roles[0].options == ()
    unmeasured = priced(measured=False).tasks[0].roles[0]
    assert unmeasured.options == ()
    assert "two processes on one GPU" in unmeasured.refusals[0]


def test_seats_become_their_card_for_the_launcher() -> None:
    """CUDA knows GPU 7; the manifest tells the seats apart, and reads back as the running plan."""
    problem, plan = planned()
    manifest = build_manifest(problem, plan, name="shared", workload=WORKLOAD)
    assert check_manifest(manifest) == []
    cards = {agent.environment["CUDA_VISIBLE_DEVICES"] for agent in agents_of(manifest)}
    assert cards == {"7"}
    assert find_emitter("torchrun").emit(manifest)
    for name in ("slurm", "kubernetes", "ray"):
        with pytest.raises(ManifestError, match="two tasks share"):
            find_emitter(name).emit(manifest)
    again = replace(problem, running=placements_of(manifest))
    kept = solve_problem(again, SolveParams(gap=0.0)).require_plan()
    assert not any(running.moved for running in kept.running)

    (node,) = manifest.spec.nodes
    for text in ("7", "0,7", "GPU-7"):
        check_visible(node, agents_of(manifest), {"CUDA_VISIBLE_DEVICES": text})
    with pytest.raises(LaunchError, match="not visible"):
        check_visible(node, agents_of(manifest), {"CUDA_VISIBLE_DEVICES": "1007"})


def test_the_verifier_sees_two_ranks_on_one_card() -> None:
    """Seats have indices of their own, so that it takes the card to see it."""
    problem, plan = planned()
    (running,) = plan.running[:1]
    (role,) = running.roles
    option = replace(role.choice.option, layout=Layout(tp=2))
    both = replace(
        role, choice=replace(role.choice, option=option), replicas=((GpuId("n0", 1007), GpuId("n0", 2007)),)
    )
    wrong = replace(
        problem,
        tasks=(replace(problem.tasks[0], roles=(replace(problem.tasks[0].roles[0], options=(option,)),)),),
    )
    pool = replace(running.configuration.phases[0].pools[0], choices=(both.choice,), block_gpus=2)
    configuration = replace(
        running.configuration,
        phases=(replace(running.configuration.phases[0], pools=(pool,)),),
        blocks=(("h200_sxm.seat", 2, 1),),
    )
    plan = replace(plan, running=(replace(running, configuration=configuration, roles=(both,)),), queued=())
    assert "gpu-twice" in {violation.code for violation in violations_of(wrong, plan)}


def test_only_low_duty_roles_share_and_no_class_is_named_like_a_seat() -> None:
    """A trainer beside another role would halve both all the time."""
    with pytest.raises(WorkloadError, match="shares_gpu"):
        check_role(reward(kind="actor_train"), Place(DOCUMENT, WorkloadError, "tasks[0].roles[0]"), None, 10)
    file = ClusterFile(schema_version=1, nodes=(NodeSpec(id="n", gpu_class="a.seat", gpu_count=1),))
    with pytest.raises(ClusterError, match="seat"):
        check_cluster(file, DOCUMENT)
    with pytest.raises(ClusterError):
        resolve_gpu(shared_cluster(), "GPU-7")  # two seats begin so
