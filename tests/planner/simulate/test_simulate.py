"""The public function: what goes in, what comes out, and what is refused."""

import pytest
from sim_worlds import DECODE, TRAIN, make_task, make_world

import libra_plan as lp
from libra_plan.planner.simulate.world import Costs


def world():
    """Make a world that runs in a moment."""
    return make_world(make_task(costs=Costs(decode=(DECODE,), train=TRAIN)), gpus=4, hours=0.1)


def test_seeds_are_a_number_or_a_list():
    """Who looks into seed 101 need not run the hundred before it."""
    found = lp.simulate(world(), ["equal"], seeds=[7, 3])
    assert [run.seed for run in found.runs] == [7, 3]
    assert [run.seed for run in lp.simulate(world(), "equal", seeds=2).runs] == [0, 1]
    alone = lp.simulate(world(), "equal", seeds=[3])
    assert alone.runs[0].weighted == found.runs[1].weighted


def test_runs_are_compared_with_one_policy():
    """The ratio of every other policy to it, and the sums of all."""
    found = lp.simulate([world()], "equal,best-static", over="equal", keep_records=True)
    assert [(each.policy, each.over) for each in found.ratios] == [("best-static", "equal")]
    assert {each.policy for each in found.summaries} == {"equal", "best-static"}
    assert (found.asked, len(found.runs), len(found.records)) == (2, 2, 2)
    assert found.to_dict()["runs"][0]["policy"] == "equal"


def test_hours_replace_those_of_the_world():
    """A first look at a world of a day must not take a day."""
    assert lp.simulate(world(), "equal", hours=0.05).runs[0].hours == 0.05


@pytest.mark.parametrize(
    ("given", "policies", "words"),
    [
        ("nowhere", "equal", "no such world"),
        (None, "best", "no such policy"),
        (None, ["equal", ""], "no such policy"),
    ],
)
def test_unknown_names_are_refused(given, policies, words):
    """The message lists what there is."""
    with pytest.raises(lp.InputError, match=words):
        lp.simulate(given or world(), policies)
