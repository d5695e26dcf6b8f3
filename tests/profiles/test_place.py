"""Where the messages of checks point."""

from __future__ import annotations

import pytest

from libra_plan.errors import WorkloadError
from libra_plan.profiles.document import parse_document
from libra_plan.profiles.place import Place

DOCUMENT = parse_document("tasks:\n- id: a\n  roles: []\n- id: a\n", "w.yaml")


def test_a_place_below_has_the_whole_key():
    """The empty key is the file itself."""
    place = Place(DOCUMENT, WorkloadError)
    assert place.at("tasks[0]").at("id").key == "tasks[0].id"
    assert place.at("").key == ""
    assert place.at("tasks[0]").at("").key == "tasks[0]"


def test_a_refusal_has_four_parts_and_its_line():
    """What, got, allowed, the way out; and where."""
    with pytest.raises(WorkloadError) as caught:
        Place(DOCUMENT, WorkloadError, "tasks[0]").refuse(
            "no role", "roles", got=0, allowed="1", way_out="add one"
        )
    assert caught.value.message == "w.yaml:3: tasks[0].roles: no role; got 0; allowed: 1; add one"


def test_nothing_is_refused_without_a_fault():
    """A check that is passed goes on."""
    Place(DOCUMENT, WorkloadError).refuse_if(False, "never")


def test_two_entries_with_one_id_name_both_lines():
    """The second is at fault, and the first is where to look."""
    with pytest.raises(
        WorkloadError, match=r"w\.yaml:4: tasks\[1\]\.id: two tasks .*got the other on line 2"
    ):
        Place(DOCUMENT, WorkloadError, "tasks").require_unique(["a", "a"], "task")
