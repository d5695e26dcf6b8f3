"""What is printed goes to the right stream, as wide as the terminal."""

from __future__ import annotations

import errno
import json
import os

import pytest
import typer

from libra_plan.cli import render
from libra_plan.errors import InputError
from libra_plan.planner.report.text_table import Page


def test_results_go_to_stdout_and_notes_to_stderr(capsys):
    """A pipe must get the result and nothing else."""
    render.print_text("result")
    render.print_data({"a": 1}, "json")
    render.note("note")
    out, err = capsys.readouterr()
    assert out.startswith("result\n")
    assert json.loads(out.removeprefix("result\n")) == {"a": 1}
    assert err == "note\n"


def test_a_pipe_has_no_width_and_no_bold(capsys):
    """What is written to a file must not depend on the terminal it was started from."""
    assert render.page() == Page()
    render.print_table(["a", "b"], [["1", "2"]], (1,))
    assert capsys.readouterr().out == "a  b\n1  2\n"


@pytest.mark.parametrize(
    ("name", "value", "bold"), [("NO_COLOR", "1", False), ("TERM", "dumb", False), ("X", "", True)]
)
def test_a_terminal_has_its_width(monkeypatch, name, value, bold):
    """Tables wrap there."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((72, 20)))
    assert render.page() == Page(72, bold)


def test_a_full_disk_is_said_in_one_line(monkeypatch):
    """It is no defect of ours."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(typer, "echo", full)
    with pytest.raises(InputError, match="No space left"):
        render.print_text("x")
    render.note("nobody can be told")
