"""What all emitters of frameworks have in common."""

from __future__ import annotations

from dataclasses import replace

import golden
import launch_cases
import plans
import pytest
import shells
from framework_cases import FRAMEWORKS, arguments, emit, values
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.base import find_emitter
from libra_plan.planner.plan import MemoryMode
from libra_plan.profiles.schema import LifecycleSpec


def test_sizes_that_do_not_divide_are_refused_where_frameworks_do_not_look():
    """With verl a job starts with tensor parallel 3 on 8 GPUs, and two of them stand idle."""
    everyone = [[gpu] for gpu in plans.span("n0", 0, 8)]
    threes = [plans.span("n0", 0, 3), plans.span("n0", 3, 3)]
    task = plans.running("t", [plans.role("actor", everyone), plans.role("rollout", threes, tp=3)])
    for name in ("verl", "openrlhf", "slime", "skyrl", "nemo-rl", "areal", "rlinf"):
        with pytest.raises(ManifestError):
            emit(name, plans.manifest_of(plans.cluster(8), task))


@pytest.mark.parametrize("launcher", ["slime", "openrlhf"])
def test_what_rolls_out_in_batches_takes_no_plan_for_a_stream(launcher):
    """A stream does not wait for its longest sample; these do, and would be slower than planned."""
    streams = launch_cases.ahead(replace(launch_cases.ASYNC, batches=False))
    with pytest.raises(ManifestError, match=r"plan it with coupling\.rollouts batches"):
        emit(launcher, streams)
    emit("areal", streams)


def test_a_resident_plan_is_not_said_to_frameworks_that_offload():
    """They would free memory that the plan keeps, and pay for it at every step."""
    everyone = [[gpu] for gpu in plans.span("n0", 0, 4)]
    roles = [plans.role("actor", everyone), plans.role("rollout", everyone)]
    manifest = plans.manifest_of(plans.cluster(4), plans.running("t", roles, memory_mode=MemoryMode.RESIDENT))
    for name in ("slime", "areal"):
        with pytest.raises(ManifestError, match="keeps it resident"):
            emit(name, manifest)
    assert (
        values(emit("verl", manifest), "t", "verl")["actor_rollout_ref.rollout.free_cache_engine"] == "false"
    )


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=10)


@pytest.mark.parametrize("name", FRAMEWORKS)
@settings(max_examples=8, deadline=None)
@given(words=st.lists(WORDS, max_size=3), folder=WORDS)
def test_hostile_words_stay_words(name, words, folder, tmp_path_factory):
    """The user's words come first and unchanged, the placement after them as it is for plain words."""
    place = tmp_path_factory.mktemp("rl")

    def make(command, checkpoint_dir):
        task = plans.running(
            "t",
            [plans.role("actor", [["n0:0"], ["n0:1"]])],
            [plans.role("rollout", [["n0:2", "n0:3"]], tp=2)],
        )
        lifecycle = LifecycleSpec(checkpoint_dir=checkpoint_dir)
        return plans.manifest_of(
            plans.cluster(4), task, command=command, lifecycle=lifecycle, coupling=launch_cases.ASYNC
        )

    files = emit(name, make(("run", *words), folder))
    shells.write(place, files)
    argv, environment = shells.recorded(place, f"t/{name}.sh", ("python3", "run"))
    plain = arguments(emit(name, make(("run",), "/plain")), "t", name) if name != "prime-rl" else []
    assert argv[: len(words)] == words
    added = argv[len(words) :]
    assert [word.partition("=")[0] for word in added] == [word.partition("=")[0] for word in plain]
    assert environment["LIBRA_PLAN_CHECKPOINT_DIR"] == folder
    if name in ("openrlhf", "slime"):
        assert [word for word in added if word.endswith(f"={folder}")]
    assert {path.name for path in place.iterdir()} == {"t", "tools", "record.env", "record.argv"}


def test_golden_cases_are_emitted_for_every_framework():
    """Golden files of refusals alone would test nothing."""
    for name in FRAMEWORKS:
        assert any(
            "refused.txt" not in golden.outcome(find_emitter(name), launch_cases.TEN[case]())
            for case in golden.CASES
        )
