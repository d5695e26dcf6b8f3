"""Emitters are found by name, and say what they cannot express."""

from __future__ import annotations

import plans
import pytest
from msgspec.structs import asdict

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.base import (
    Ability,
    Emitter,
    LauncherRefusal,
    Options,
    configured,
    emitters,
    find_emitter,
    refusal,
)


class Nothing(Emitter):
    """A launcher that starts nothing, so that only its abilities count."""

    def files(self, picked):
        return {}


def emitting(*abilities):
    return Nothing("nothing", ("1",), frozenset(abilities), Options())


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
        emitting(Ability.MULTI_NODE, Ability.CPU_ROLES).emit(plans.colocated())
    roles = "ppo/actor, ppo/rollout, ppo/reference"
    assert f"{roles}: exact GPUs" in caught.value.got
    assert f"{roles}: roles that share GPUs" in caught.value.got


def test_what_is_not_asked_for_is_not_refused():
    """A launcher without an ability still serves manifests that do not need it."""
    emitter = emitting(*(frozenset(Ability) - {Ability.SHARED_GPUS, Ability.UNEQUAL_NODES}))
    assert emitter.emit(plans.two_nodes()) == {}
    assert emitter.emit(plans.single_node()) == {}


def test_a_cause_is_told_once_with_all_its_places():
    """Twelve roles without a command are one mistake, not twelve."""
    refused = refusal("x", ["t/a: it has no command", "it counts", "t/b: it has no command"], "solve again")
    assert refused.causes == ("t/a, t/b: it has no command", "it counts")
    assert refused.way_out.startswith("state `command` of these roles in workload.yaml")
    assert refused.way_out.endswith("solve again")


def test_options_are_set_from_texts():
    """Words, pairs, switches and numbers all come as text from the command line."""
    given = {
        "program": "python -m 'torch.distributed.run'",
        "addresses": "t/a=10.0.0.1,t/b=10.0.0.2",
        "shutdown_timeout": "true",
        "rendezvous_timeout_s": "60",
    }
    assert asdict(configured(find_emitter("torchrun"), given).options) == {
        "program": ("python", "-m", "torch.distributed.run"),
        "addresses": {"t/a": "10.0.0.1", "t/b": "10.0.0.2"},
        "shutdown_timeout": True,
        "rendezvous_timeout_s": 60,
    }


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("shutdown_timout", "true", "did you mean `shutdown_timeout`"),
        ("rendezvous_timeout_s", "soon", "wrong value"),
        ("addresses", "10.0.0.1", "pairs"),
        ("program", "'torchrun", "words"),
    ],
)
def test_a_wrong_option_is_refused_by_name(key, value, said):
    """An option that is quietly left out would be found missing on the cluster."""
    with pytest.raises(ManifestError, match=said):
        configured(find_emitter("torchrun"), {key: value})


@pytest.mark.parametrize("name", ["slime", "skyrl", "nemo-rl", "prime-rl"])
def test_a_refusal_has_all_four_parts(name):
    """What stands in the way is half of it: who reads it wants to know what would do."""
    with pytest.raises(LauncherRefusal, match="cannot express this manifest: ") as told:
        find_emitter(name).emit(plans.two_nodes())
    assert all((told.value.got, told.value.allowed, told.value.way_out))
    assert "allowed: exact GPUs" in str(told.value)
