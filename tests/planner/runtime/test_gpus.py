"""Nothing is started on GPUs that are somebody else's, hidden, or not known to be free."""

from __future__ import annotations

import plans
import pytest

from libra_plan.errors import InputError, LaunchError
from libra_plan.planner.launchers.agents import agents_of
from libra_plan.planner.runtime import gpus as launch_gpus
from libra_plan.planner.runtime.gpus import GpuReport, GpuUse, check_gpus_free, check_visible, gpus_unknown


def manifest(*gpus, where=None):
    return plans.manifest_of(
        where or plans.cluster(8), plans.running("t", [plans.role("train", [[one] for one in gpus])])
    )


def here(*gpus):
    made = manifest(*gpus)
    return made.spec.nodes[0], agents_of(made)


def test_gpus_hidden_from_the_caller_are_refused_with_all_three_numbers():
    """A002: what is visible, what is planned and what exists once disagreed without a word."""
    node, agents = here("n0:1", "n0:2")
    with pytest.raises(LaunchError) as caught:
        check_visible(node, agents, {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert "CUDA_VISIBLE_DEVICES=0,1; planned: 1, 2; hidden: 2" in caught.value.got
    assert "0, 1, 2, 3, 4, 5, 6, 7" in caught.value.allowed


@pytest.mark.parametrize("text", ["1,2", "GPU-n0-1,GPU-n0-2", " 2 , GPU-n0-1", "0,1,2,3"])
def test_visible_gpus_may_be_indices_or_uuids(text):
    """A011: both forms are in use, mixed too."""
    node, agents = here("n0:1", "n0:2")
    check_visible(node, agents, {"CUDA_VISIBLE_DEVICES": text})
    check_visible(node, agents, {})


@pytest.mark.parametrize("text", ["", "GPU-n0", "-1", "GPU-other"])
def test_an_entry_that_names_no_one_gpu_shows_none(text):
    """A beginning that fits several UUIDs names none of them."""
    node, agents = here("n0:1")
    with pytest.raises(LaunchError):
        check_visible(node, agents, {"CUDA_VISIBLE_DEVICES": text})


def test_a_busy_gpu_is_refused_with_its_holder_and_the_free_count():
    """A003: the error must say who holds the GPUs and how many are free."""
    node, agents = here("n0:1", "n0:2")

    def check(_, gpus):
        return tuple(
            GpuReport(f"n0:{gpu.index}", GpuUse.BUSY, "pid 7, job X")
            if gpu.index == 2
            else GpuReport(f"n0:{gpu.index}", GpuUse.FREE)
            for gpu in gpus
        )

    with pytest.raises(LaunchError) as caught:
        check_gpus_free(node, agents, check, allow_unknown=True)
    assert caught.value.got == "GPU n0:2 busy (pid 7, job X)"
    assert caught.value.allowed == "2 free GPUs; 1 are"


def test_unknown_is_not_free():
    """A044: an empty process list in a container is no proof of a free GPU."""
    node, agents = here("n0:1")
    with pytest.raises(LaunchError, match="unknown"):
        check_gpus_free(node, agents, gpus_unknown, allow_unknown=False)
    (report,) = check_gpus_free(node, agents, gpus_unknown, allow_unknown=True)
    assert report.state is GpuUse.UNKNOWN


def test_what_is_true_of_all_gpus_is_told_once():
    """Without NVML every GPU is unknown for one reason, and one flag is the way out."""
    node, agents = here("n0:1", "n0:2", "n0:5")
    with pytest.raises(LaunchError) as caught:
        check_gpus_free(node, agents, gpus_unknown, allow_unknown=False)
    assert caught.value.got == "GPUs n0:1, n0:2, n0:5 unknown (nothing reads the GPUs here)"
    assert "--allow-unknown-gpus" in caught.value.way_out


def test_nvml_that_does_not_answer_is_no_matter_of_other_verbs(monkeypatch):
    """`launch` has neither --gpus nor --cluster, so its messages must not advise them."""

    def no_cards():
        raise InputError("the GPUs cannot be read", got="NVML: Driver Not Loaded", way_out="--gpus N")

    monkeypatch.setattr(launch_gpus, "read_cards", no_cards)
    node, agents = here("n0:1", "n0:2")
    with pytest.raises(LaunchError) as caught:
        check_gpus_free(node, agents, launch_gpus.gpus_free, allow_unknown=False)
    assert caught.value.message.count("Driver Not Loaded") == 1
    assert "--gpus N" not in caught.value.message


def test_a_check_that_forgets_a_gpu_leaves_it_unknown():
    """No answer is no permission."""
    node, agents = here("n0:1", "n0:2")
    with pytest.raises(LaunchError, match="GPU n0:2 unknown"):
        check_gpus_free(node, agents, lambda *_: (GpuReport("n0:1", GpuUse.FREE),), allow_unknown=False)
