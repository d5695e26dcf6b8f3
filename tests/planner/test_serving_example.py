"""The serving example: shipped serving profiles, two GPU classes, judges that write."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from pricing_cases import fits_with

from libra_plan.errors import WorkloadError
from libra_plan.models.clusters import cluster_of
from libra_plan.models.fit import fit_profile
from libra_plan.models.lengths import sample_lengths
from libra_plan.models.pricing.work import work_of
from libra_plan.models.quantities import Origin
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.pricing import price_workload
from libra_plan.profiles.catalog import load_folder, shipped_folder
from libra_plan.profiles.schema import Fixed

EXAMPLE = Path(__file__).parents[2] / "examples" / "serving"
pytestmark = pytest.mark.skipif(not EXAMPLE.is_dir(), reason="run against an installed package")


@pytest.fixture(scope="module")
def folder():
    return load_folder(EXAMPLE, library=[shipped_folder()])


@pytest.fixture(scope="module")
def fits(folder):
    made = {name: fit_profile(each.file, each.points) for name, each in folder.profiles.items()}
    return fits_with(folder, lambda loaded: made[loaded.file.id])


@pytest.fixture(scope="module")
def problem(folder, fits):
    return price_workload(folder, cluster_of(folder.cluster), fits=fits)


def options(problem, task, role):
    found = next(each for each in problem.task_of[task].roles if each.id == role)
    return found.options


def test_each_measured_layout_is_an_option(problem):
    """Sizes 1, 2 and 4 on H200, 4 and 8 on H100, none that was not measured."""
    found = {(o.gpu_class, o.layout.tp) for o in options(problem, "eval-70b", "rollout")}
    assert found == {("h200_sxm", 1), ("h200_sxm", 2), ("h200_sxm", 4), ("h100_sxm", 4), ("h100_sxm", 8)}


def test_tensor_parallel_engines_cost_more_gpu_seconds(problem):
    """A measured law of serving: twice the GPUs, less than twice as fast."""
    of = {
        (o.layout.tp, o.replicas): o
        for o in options(problem, "eval-70b", "rollout")
        if o.gpu_class == "h200_sxm"
    }
    assert of[2, 1].time_s.value < of[1, 1].time_s.value
    assert 4 * of[4, 1].time_s.value > 2 * of[2, 1].time_s.value


def test_memory_of_engines_is_assumed_and_within_their_share(problem):
    """The option says so, and does not pass gpu_memory_utilization."""
    for option in options(problem, "eval-70b", "rollout"):
        assert any("assumed from the model's shape" in note for note in option.notes)
        limit = {"h200_sxm": 143_155.9, "h100_sxm": 81_559.0}[option.gpu_class]
        assert option.peak_mib <= 0.9 * limit + 1024.0
        assert option.time_s.origin is Origin.INTERPOLATED


def test_the_plan_runs_both_evaluations(problem):
    """70B on H200, 32B where it was measured, and nobody waits."""
    result = solve_problem(problem)
    assert result.plan is not None
    assert result.plan.queued == ()
    classes = {
        r.task: {p.gpu_class for ph in r.configuration.phases for p in ph.pools} for r in result.plan.running
    }
    assert classes == {"eval-70b": {"h200_sxm"}, "eval-32b": {"h100_sxm"}}


def test_a_rollout_at_lengths_far_from_the_table_is_refused(folder, fits):
    """Prompts of 64 tokens and answers of 32 lie octaves outside what was measured."""
    task = folder.workload.tasks[0]
    work = msgspec.structs.replace(
        task.work_per_step, prompt_tokens=Fixed(tokens=64), response_tokens=Fixed(tokens=32)
    )
    short = msgspec.structs.replace(task, work_per_step=work)
    changed = replace(folder, workload=msgspec.structs.replace(folder.workload, tasks=(short,)))
    priced = price_workload(changed, cluster_of(folder.cluster), fits=fits)
    rollout = priced.tasks[0].roles[0]
    assert rollout.options == ()
    assert any("outside what was measured" in line for line in rollout.refusals)


def test_a_judge_reads_what_the_rollout_wrote(folder):
    """Its prompts are the whole samples, its responses the verdicts."""
    task = folder.workload.tasks[0]
    work = work_of(task, {}, seed=0)
    verdicts = work.verdicts["judge"]
    assert len(verdicts) == len(work.orders)
    for order, verdict in zip(work.orders, verdicts, strict=True):
        assert (verdict.prompt_tokens == order.final_context).all()
    judge = next(role for role in task.roles if role.id == "judge")
    lengths = sample_lengths(judge.verdict_tokens, task.work_per_step.samples)
    assert sorted(verdicts[0].response_tokens) == sorted(lengths.tokens)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "verdict_tokens: {kind: lognormal, median_tokens: 400, sigma: 0.5, max_tokens: 1024}",
            "",
            "does not state",
        ),
        ("kind: judge", "kind: rollout", "for judge roles"),
        (
            "median_tokens: 400, sigma: 0.5, max_tokens: 1024",
            "median_tokens: 400, sigma: 0.5, max_tokens: 10",
            "above",
        ),
    ],
)
def test_judges_that_contradict_themselves_are_refused(tmp_path, old, new, said):
    """A writing judge states its verdicts; nobody else has any."""
    text = (EXAMPLE / "workload.yaml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "workload.yaml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(WorkloadError, match=said):
        load_folder(tmp_path, library=[shipped_folder()])
