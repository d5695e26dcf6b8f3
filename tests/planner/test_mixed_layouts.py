"""Rollouts that mix layouts, from the workload to the launcher."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import msgspec
import pytest
from pricing_cases import fits_with

from libra_plan.errors import ManifestError, WorkloadError
from libra_plan.models.clusters import uniform_cluster
from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.planner.launchers.base import find_emitter
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.check import check_manifest
from libra_plan.planner.launchers.document import placements_of
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.pricing import price_workload
from libra_plan.planner.problem import Problem, StageOption
from libra_plan.planner.verify import violations_of
from libra_plan.profiles.catalog import LoadedProfile, ProfilesFolder, load_folder, shipped_folder
from libra_plan.profiles.document import Document
from libra_plan.profiles.place import Place
from libra_plan.profiles.role_checks import check_role
from libra_plan.profiles.schema import (
    Distribution,
    Fixed,
    LayoutSpec,
    LogNormal,
    MixedLayoutsSpec,
    RoleSpec,
    TaskSpec,
    WorkloadFile,
    WorkSpec,
)

DECODE, SCORE = "h200-qwen2.5-7b-decode", "h200-qwen2.5-7b-score"
SAMPLES = 96
PROMPTS = LogNormal(median_tokens=800, sigma=0.1, max_tokens=1024)


@cache
def fitted(name: str) -> FittedProfile:
    profile = shipped().profiles[name]
    return fit_profile(profile.file, profile.points)


@cache
def shipped() -> ProfilesFolder:
    return load_folder(shipped_folder())


def fit(profile: LoadedProfile) -> FittedProfile:
    return fitted(profile.file.id)


def priced(
    ranking_error: float | None, gpus: int = 8, *, prompts: Distribution = PROMPTS, seed: int = 0
) -> Problem:
    """Price one evaluation task: long-tailed responses on tp 1, 2 and 4, the last two assumed."""
    role = RoleSpec(
        id="rollout",
        kind="rollout",
        profiles=(DECODE, SCORE),
        layouts=tuple(LayoutSpec(tp=tp) for tp in (1, 2, 4)),
        mixed_layouts=None if ranking_error is None else MixedLayoutsSpec(ranking_error=ranking_error),
        command=("rollout.py",),
    )
    work = WorkSpec(
        samples=SAMPLES,
        prompt_tokens=prompts,
        response_tokens=LogNormal(median_tokens=2000, sigma=1.0, max_tokens=30_000),
    )
    workload = WorkloadFile(schema_version=1, tasks=(TaskSpec(id="eval", work_per_step=work, roles=(role,)),))
    cluster = uniform_cluster(gpus, "h200_sxm", 143_155.9)
    folder = replace(shipped(), workload=workload)
    return price_workload(folder, cluster, fits=fits_with(folder, fit), allow_prior=True, seed=seed)


def mixes(problem: Problem) -> list[StageOption]:
    return [option for option in problem.tasks[0].roles[0].options if option.mix]


def test_errors_of_the_predictor_are_drawn_from_the_seed():
    """With equal prompts the lengths by rank are always the same, so what differs are the rankings drawn."""

    def times(seed: int, ranking_error: float) -> list[float]:
        found = mixes(priced(ranking_error, prompts=Fixed(tokens=800), seed=seed))
        return [option.time_s.value for option in found]

    assert times(1, 0.5) == times(1, 0.5)
    assert times(1, 0.5) != times(2, 0.5)
    assert times(1, 1e-9) == pytest.approx(times(2, 1e-9))


def test_no_mix_is_offered_unless_asked_for() -> None:
    """Ranking lengths needs a predictor; nobody has one by default."""
    assert mixes(priced(None)) == []


def test_every_mix_serves_every_trajectory_once() -> None:
    """Ranges that overlap or leave gaps would be priced for work that is not the task's."""
    found = mixes(priced(0.2))
    assert found
    for option in found:
        served = sorted(at for kind in option.mix for at in range(kind.start, kind.stop, kind.stride))
        assert served == list(range(SAMPLES))
        assert option.gpus == sum(kind.layout.gpus_per_replica for kind in option.mix) <= 8
        assert option.time_s.low <= option.time_s.value <= option.time_s.high


def test_a_predictor_gains_as_much_as_it_knows() -> None:
    """Known lengths beat equal replicas at 8 GPUs; the worse the ranking, the slower, up to a loss."""
    uniform = min(o.time_s.value for o in priced(None).tasks[0].roles[0].options if o.gpus == 8)
    times = [
        min(option.time_s.value for option in mixes(priced(error)) if option.gpus <= 8)
        for error in (0.0, 0.2, 3.0)
    ]
    assert times[0] < uniform
    assert times == sorted(times)
    assert times[2] > uniform


def test_a_mix_goes_all_the_way_to_the_launcher_and_stays_where_it_is() -> None:
    """Plan, verifier, manifest, its checks, torchrun's environment, and the running plan read from it."""
    problem = priced(0.0)
    plan = solve_problem(problem, SolveParams(gap=0.0)).require_plan()
    (role,) = plan.running[0].roles
    assert role.choice.option.mix
    assert len({layout.tp for layout in role.choice.option.layouts}) > 1
    assert violations_of(problem, plan) == []
    manifest = build_manifest(problem, plan, name="mixed")
    assert check_manifest(manifest) == []
    entry = manifest.spec.tasks[0].roles[0]
    assert entry.layout is None
    assert not isinstance(entry.mix, msgspec.UnsetType)
    assert [kind.tp for kind in entry.mix] == [len(replica) for replica in entry.replicas]

    again = replace(problem, running=placements_of(manifest))
    kept = solve_problem(again, SolveParams(gap=0.0)).require_plan()
    assert not kept.running[0].moved
    assert violations_of(again, kept) == []

    with_command = manifest_with_command(problem, plan)
    files = find_emitter("torchrun").emit(with_command)
    (line,) = [
        line
        for name, text in files.items()
        if name.endswith(".env")
        for line in text.splitlines()
        if line.startswith("LIBRA_PLAN_MIX=")
    ]
    told = json.loads(line.partition("=")[2].strip("'"))
    assert [each["first_rank"] for each in told] == [
        sum(len(replica) for replica in entry.replicas[:at]) for at in range(len(entry.replicas))
    ]
    with pytest.raises(ManifestError, match="different layouts"):
        find_emitter("verl").emit(with_command)


def manifest_with_command(problem: Problem, plan):
    role = RoleSpec(id="rollout", kind="rollout", profiles=(DECODE,), command=("rollout.py",))
    work = WorkSpec(samples=1, prompt_tokens=LogNormal(median_tokens=8, sigma=0, max_tokens=8))
    workload = WorkloadFile(schema_version=1, tasks=(TaskSpec(id="eval", work_per_step=work, roles=(role,)),))
    return build_manifest(problem, plan, name="mixed", workload=workload)


def test_the_verifier_sees_replicas_of_wrong_sizes() -> None:
    """A mix whose replicas are swapped gives a layout another one's GPUs."""
    problem = priced(0.0)
    plan = solve_problem(problem, SolveParams(gap=0.0)).require_plan()
    (role,) = plan.running[0].roles
    sizes = [layout.tp for layout in role.choice.option.layouts]
    other = next(at for at, size in enumerate(sizes) if size != sizes[0])
    swapped = list(role.replicas)
    swapped[0], swapped[other] = swapped[other], swapped[0]
    running = replace(plan.running[0], roles=(replace(role, replicas=tuple(swapped)),))
    codes = {violation.code for violation in violations_of(problem, replace(plan, running=(running,)))}
    assert "replica-size" in codes


def test_only_rollouts_without_pins_may_mix() -> None:
    """Training has no lengths to rank, and pinned GPUs would have to be cut to fit."""
    wrong = (
        RoleSpec(
            id="r", kind="reference", profiles=(SCORE,), mixed_layouts=MixedLayoutsSpec(ranking_error=0.1)
        ),
        RoleSpec(
            id="r",
            kind="rollout",
            profiles=(DECODE,),
            pinned_gpus=("n0:0",),
            mixed_layouts=MixedLayoutsSpec(ranking_error=0.1),
        ),
    )
    for role in wrong:
        with pytest.raises(WorkloadError, match="mixed_layouts"):
            check_role(role, Place(Document({}, "w.yaml"), WorkloadError, "tasks[0].roles[0]"), None, 10)


def test_the_form_names_every_layout_of_a_mix() -> None:
    """People read `1 × tp4 + 2 × tp1`, not the largest layout alone."""
    option = next(option for option in mixes(priced(0.0)) if len(set(option.layouts)) > 1)
    for layout in set(option.layouts):
        assert f"{option.layouts.count(layout)} × {layout}" in option.form
    assert option.layout == max(option.layouts, key=lambda each: each.gpus_per_replica)
    assert replace(option, mix=(), layout=Layout(), replicas=3).form == "3 × tp1"
