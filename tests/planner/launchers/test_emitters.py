"""Every emitter, held against golden files, and against hostile words of every kind."""

from __future__ import annotations

import golden
import launch_cases
import plans
import pytest
from msgspec.structs import asdict

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.base import Ability, LauncherRefusal, configured, find_emitter

EMITTERS = golden.golden_emitters()


@pytest.mark.parametrize("case", golden.CASES)
@pytest.mark.parametrize("name", [name for name in EMITTERS if name != "torchrun"])
def test_golden_files(name, case):
    """A change of what launchers get, or of why they get nothing, must be seen in review."""
    folder = golden.FOLDER / name / case
    kept = {
        str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()
    }
    assert golden.outcome(EMITTERS[name], launch_cases.TEN[case]()) == kept


def test_the_table_of_ten_manifests_is_up_to_date():
    """What is refused, and why, is a promise to users; a change of it must be seen."""
    assert golden.table() == (golden.FOLDER / "launchers.md").read_text("utf-8")


@pytest.mark.parametrize("name", EMITTERS)
def test_each_emitter_says_what_it_can_and_what_it_was_checked_against(name):
    """`emit --list` shows both."""
    emitter = EMITTERS[name]
    assert emitter.name == name
    assert emitter.versions
    assert emitter.abilities & {Ability.GPU_IDS, Ability.TASK_GPUS}


@pytest.mark.parametrize("name", EMITTERS)
def test_an_unknown_option_names_the_known_ones(name):
    """A misspelt option must not be dropped in silence."""
    with pytest.raises(ManifestError) as caught:
        configured(find_emitter(name), {"colour": "red"})
    assert all(key in caught.value.allowed for key in asdict(find_emitter(name).options))


def test_an_option_of_a_wrong_type_is_refused():
    """A port that is no number would come out in a script."""
    with pytest.raises(ManifestError, match="wrong value"):
        configured(find_emitter("ray"), {"port_base": "many"})
    with pytest.raises(ManifestError, match="wrong value"):
        configured(find_emitter("slurm"), {"partition": "a b; touch gone"})
    assert asdict(configured(find_emitter("ray"), {"port_base": "12000"}).options)["port_base"] == 12_000


@pytest.mark.parametrize("name", [name for name in EMITTERS if "tasks" in asdict(EMITTERS[name].options)])
def test_tasks_can_be_picked_and_a_wrong_one_is_refused(name):
    """A manifest holds tasks of several frameworks, each for its own emitter."""
    emitter = configured(EMITTERS[name], {"tasks": "third"})
    with pytest.raises(ManifestError, match="no such task"):
        emitter.emit(launch_cases.gaps())


def test_a_picked_task_is_emitted_alone():
    """The refusal of one task must not stand in the way of another."""
    files = configured(find_emitter("verl"), {"tasks": "second"}).emit(launch_cases.gaps())
    assert {path.split("/")[0] for path in files} == {"second"}


def test_every_reason_is_listed_at_once():
    """A user who mends one thing must not meet the next one only then."""
    with pytest.raises(ManifestError) as caught:
        find_emitter("prime-rl").emit(plans.colocated())
    for part in ("roles that share GPUs", "no reference on GPUs", "no tp here"):
        assert part in caught.value.got


@pytest.mark.parametrize("name", EMITTERS)
def test_unequal_nodes_are_told_once_with_the_key_that_helps(name):
    """One fact in three wordings looks like three things to mend."""
    if Ability.UNEQUAL_NODES in find_emitter(name).abilities:
        return
    with pytest.raises(LauncherRefusal) as caught:
        find_emitter(name).emit(launch_cases.unequal())
    assert caught.value.causes == (
        "unequal/actor: a role with unequal numbers of GPUs on its nodes (8 on n0, 2 on n1)",
    )
    assert "`max_gpus`" in caught.value.way_out
    assert "got" not in caught.value.message.split()


def test_what_stands_in_the_way_is_not_called_got():
    """A rule of the launcher is nothing that the plan has."""
    with pytest.raises(LauncherRefusal) as caught:
        find_emitter("slurm").emit(launch_cases.gaps())
    assert caught.value.message.startswith(
        "slurm cannot express this manifest: first and second share node n0, and Slurm gives exact GPUs"
    )


@pytest.mark.parametrize("name", EMITTERS)
def test_two_emissions_are_equal(name):
    """Nothing that is emitted may hold a time or anything random."""
    for make in launch_cases.TEN.values():
        assert golden.outcome(EMITTERS[name], make()) == golden.outcome(EMITTERS[name], make())
