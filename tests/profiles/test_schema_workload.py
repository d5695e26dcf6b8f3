"""What a workload means where it says nothing."""

import msgspec
import pytest

from libra_plan.profiles.schema_workload import CouplingSpec, Distribution, Fixed, LogNormal, TaskSpec, Trace

TASK = {
    "id": "a",
    "work_per_step": {"samples": 1, "prompt_tokens": {"kind": "fixed", "tokens": 1}},
    "roles": [],
}


def test_a_task_is_synchronous_and_may_be_arranged_in_every_way():
    """The defaults exclude nothing and wait for nobody."""
    task = msgspec.convert(TASK, TaskSpec)
    assert task.coupling == CouplingSpec(kind="sync", staleness_steps=0, rollouts="stream", groups=None)
    assert task.arrangements == ("colocated", "separate", "hybrid")
    assert (task.weight, task.min_gpus, task.max_gpus, task.waited_s) == (1.0, 0, None, 0.0)
    assert not task.latency_first


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"kind": "fixed", "tokens": 3}, Fixed),
        ({"kind": "lognormal", "median_tokens": 2, "sigma": 0, "max_tokens": 9}, LogNormal),
        ({"kind": "trace", "file": "x.csv"}, Trace),
    ],
)
def test_the_kind_of_a_length_decides_its_keys(data, kind):
    """Keys of another kind are refused."""
    assert isinstance(msgspec.convert(data, Distribution), kind)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(data | {"edges_tokens": [1, 2]}, Distribution)


@pytest.mark.parametrize(
    "change",
    [{"weight": 0}, {"min_gpus": -1}, {"max_gpus": 0}, {"waited_s": -1}, {"arrangements": ["apart"]}],
)
def test_numbers_out_of_range_are_refused(change):
    """Each would make a plan that no cluster can run."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(TASK | change, TaskSpec)
