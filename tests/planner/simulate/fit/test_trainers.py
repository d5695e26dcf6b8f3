"""Costs of training and scoring: factors come back, and nothing is fitted to too little."""

import msgspec
import pytest
from sim_worlds import DECODE, TRAIN, Scoring, make_task

from libra_plan.planner.simulate.fit.evidence import FitFindings, StageSeen, TaskSeen
from libra_plan.planner.simulate.fit.trainers import fit_scoring, fit_training
from libra_plan.planner.simulate.stage_times import replica_train_s
from libra_plan.planner.simulate.work import DrawnWork
from libra_plan.planner.simulate.world import Costs

TASK = make_task(
    costs=Costs(decode=(DECODE,), train=TRAIN, scoring=(Scoring(id="reference", per_token_s=1e-6),))
)


def stages(count, factor=1.0, placed=(1,)):
    """Record the training of drawn steps on one replica."""
    work, rows = DrawnWork(TASK, 5), []
    for step in range(count):
        lengths = work.step(step).lengths
        rows.append(StageSeen(step, factor * replica_train_s(TRAIN, lengths), float(lengths.sum()), placed))
    return rows


def test_a_slower_machine_is_one_factor():
    """All costs of training are scaled alike, since stage times at one size tell no more."""
    found = FitFindings()
    fitted = fit_training(TASK, stages(30, factor=1.4), "log", found)
    assert fitted.per_token_s == pytest.approx(1.4 * TRAIN.per_token_s, rel=0.02)
    assert fitted.per_square_s == pytest.approx(1.4 * TRAIN.per_square_s, rel=0.02)
    assert fitted.straggler_sigma < 0.02
    (factor, sigma) = found.figures
    assert factor.low <= factor.value <= factor.high
    assert sigma.samples == 30


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (stages(7), "7 training stages on known GPUs"),
        (stages(9, placed=None), "0 training stages on known GPUs"),
        (stages(5) + stages(5, placed=(2,)), "replicas of several sizes"),
    ],
)
def test_too_little_or_mixed_evidence_keeps_the_base(rows, reason):
    """A factor from a handful of steps, or from unlike replicas, is luck."""
    found = FitFindings()
    assert fit_training(TASK, rows, "log", found) == TRAIN
    assert reason in dict(found.assumed)["rl.costs.train"]


def test_replicas_of_another_size_are_taken_as_recorded_and_doubted():
    """The recording knows its layout; the base's cost law may not hold for it."""
    found = FitFindings()
    fitted = fit_training(TASK, stages(9, placed=(2,)), "log", found)
    assert fitted.gpus == 2
    assert "taken as recorded" in found.doubts[0]


def test_scoring_is_seconds_times_replicas_by_tokens():
    """Work of a role that reads divides over its replicas."""
    rows = [StageSeen(step, 3.0, 1e6, (2, 2)) for step in range(8)]
    found = FitFindings()
    (fitted,) = fit_scoring(TASK, TaskSeen(stages={"ref": rows}), {"ref": "reference"}, found)
    assert (fitted.gpus, fitted.per_token_s) == (2, pytest.approx(6e-6))
    (kept,) = fit_scoring(TASK, TaskSeen(stages={"ref": rows[:7]}), {"ref": "reference"}, FitFindings())
    assert kept == TASK.costs.scoring[0]
    assert msgspec.structs.asdict(kept)["per_token_s"] == 1e-6
