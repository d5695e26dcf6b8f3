"""Emitters are found by name, and say what they cannot express."""

from __future__ import annotations

import plans
import pytest

from libra_plan.errors import ManifestError
from libra_plan.planner.manifests.base import Ability, check_abilities, emitters, find_emitter


class CountsOnly:
    """A launcher that takes numbers of GPUs, like many: no ids, no sharing."""

    name = "counts-only"
    abilities = frozenset({Ability.MULTI_NODE, Ability.CPU_ROLES})
    versions = ("1",)

    def emit(self, manifest):
        check_abilities(self, manifest)
        return {}


def test_torchrun_is_found_by_name():
    """A new launcher is one file; nothing lists it."""
    assert find_emitter("torchrun") is emitters()["torchrun"]


def test_an_unknown_launcher_names_the_known_ones():
    """A wrong name must lead to the right one."""
    with pytest.raises(ManifestError) as caught:
        find_emitter("torchrum")
    assert "torchrun" in caught.value.allowed


def test_everything_that_cannot_be_said_is_listed():
    """Never an approximation: the user sees all that stands in the way at once."""
    with pytest.raises(ManifestError) as caught:
        CountsOnly().emit(plans.colocated())
    for role in ("actor", "rollout", "reference"):
        assert f"ppo/{role}: exact GPUs" in caught.value.got
        assert f"ppo/{role}: roles that share GPUs" in caught.value.got


def test_what_is_not_asked_for_is_not_refused():
    """A launcher without an ability still serves manifests that do not need it."""

    class NoSharing(CountsOnly):
        abilities = frozenset(Ability) - {Ability.SHARED_GPUS, Ability.UNEQUAL_NODES}

    assert NoSharing().emit(plans.two_nodes()) == {}
    assert NoSharing().emit(plans.single_node()) == {}
