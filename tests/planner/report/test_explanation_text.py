"""An explanation as text says all that it holds."""

from __future__ import annotations

from libra_plan.planner.explain import (
    Alternative,
    CannotRun,
    Explanation,
    LimitGain,
    NextBest,
    OneMoreGpu,
    Relaxation,
    TaskExplanation,
)
from libra_plan.planner.plan import QueuedTask

TASK = TaskExplanation(
    "rl", "rollout", 0.75, "GPUs: 2 more would make it faster", 0.25, 2, ("a note",),
    (Alternative("colocated", 4, 123.4),),
)  # fmt: skip
LIMIT = LimitGain(Relaxation("task-max", "rl", "", 4.0, 8.0, 1.0), 0.5, 0.75)


def test_every_part_is_said():
    """A part that is not printed was computed for nothing."""
    told = Explanation(
        tasks=(TASK,),
        one_more_gpu=(OneMoreGpu("h200_sxm", 3.0, 0.25, ("rl",), 0.125, 0.0625),),
        limits=(LIMIT, LIMIT),
        next_best=NextBest(2.0, 0.5, ("rl waits",)),
        cannot_run=(CannotRun("stuck", (), True),),
        queued=(QueuedTask("late", "worth", "late: not worth it"),),
    )
    assert told.summary().splitlines() == [
        "rl: rollout takes 75% of the step",
        "  binds: GPUs: 2 more would make it faster",
        "  2 more GPUs: +25.0% throughput",
        "  a note",
        "  colocated: step 123 s on 4 GPUs",
        "one more h200_sxm: objective +0.2500, goes to rl (LP price 0.1250, in a full node 0.0625 per GPU)",
        "first raise max_gpus of rl from 4 to 8: objective +0.5000, at most +0.7500",
        "then raise max_gpus of rl from 4 to 8: objective +0.5000, at most +0.7500",
        "next-best plan: objective 2.0000 (-0.5000): rl waits",
        "stuck cannot run whatever gives way: no arrangement has forms for all roles",
        "waits [worth] late: not worth it",
    ]


def test_what_is_not_there_is_said_too():
    """Silence would read as: not looked at."""
    told = Explanation((), (OneMoreGpu("h200_sxm", 3.0, 0.0, (), None, None),))
    assert told.summary().splitlines() == [
        "one more h200_sxm: objective +0.0000, goes to no task",
        "no single limit, raised by a step, gains anything",
        "there is no other plan",
    ]
    assert set(told.to_dict()) == {"explanation", "queued"}
