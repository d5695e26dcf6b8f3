"""One line says what went wrong, where the value came from and what was probably meant."""

from __future__ import annotations

import os
from pathlib import Path

from libra_plan.cli.errors import line_of, printable
from libra_plan.errors import InputError, LaunchError, Where


def test_an_error_of_ours_is_one_line():
    """Scripts read lines; a message with line breaks of a parser would be several."""
    error = InputError(
        "wrong\nvalue", got="3", allowed="1, 2", way_out="take 2", where=Where("f.yaml", 4, "a.b")
    )
    assert line_of(error) == "f.yaml:4: a.b: wrong value; got 3; allowed: 1, 2; take 2"


def test_several_causes_get_a_line_each():
    """A launcher that refuses for three reasons must name all of them."""
    error = LaunchError("cannot start", way_out="see below")
    error.causes = ("one  reason", "another\nreason")
    assert line_of(error) == "cannot start, for 2 reasons; see below\n  one reason\n  another reason"


def test_an_option_that_is_misspelt_is_answered_with_the_right_one(call):
    """The help is a page long."""
    ran = call("solve", "profiles", "--gpu", 8)
    assert ran.code == 2
    assert "did you mean `--gpus`?" in ran.err
    assert "see `libra-plan solve --help`" in ran.err


def test_a_wrong_value_says_that_it_came_from_the_environment(call, monkeypatch):
    """Nobody looks for it there."""
    monkeypatch.setenv("LIBRA_PLAN_SOLVE_GPUS", "eight")
    ran = call("solve", "profiles")
    assert ran.code == 2
    assert "from the environment: LIBRA_PLAN_SOLVE_GPUS" in ran.err


def test_any_path_can_be_printed():
    """File names hold bytes, and a message must not fail for them."""
    path = Path(os.fsdecode(b"caf\xe9"))
    assert printable(path).encode("utf-8")
