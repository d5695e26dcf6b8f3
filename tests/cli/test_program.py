"""What the help and the documents show must be understood by the program."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
import typer
import yaml

from libra_plan.cli.app import app
from libra_plan.cli.profile_verbs import _facts
from libra_plan.profiles.importers.facts import facts_from_flags
from libra_plan.profiles.importers.run import FORMATS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SAMPLES = ROOT / "tests" / "data" / "importers"
COMMAND = typer.main.get_command(app)


def commands(command=COMMAND, path=()):
    """List every command with the words that lead to it, groups included."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


def shown(text):
    """Find the commands in a help text."""
    return re.findall(r"Example: (libra-plan .*)", text or "")


EXAMPLES = [(" ".join(path), line) for path, command in commands() for line in shown(command.help)]


def in_documents():
    """Find the commands in fenced blocks of the documents, one a line, continued lines joined."""
    for path in DOCUMENTS:
        for block in re.findall(
            r"^```sh\n(.*?)^```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("libra-plan ") and "…" not in line:
                    yield line


def parsed(line):
    """Parse a command line as the program would; give the last command, what it takes, and what is left."""
    words = shlex.split(line.partition(" > ")[0], comments=True)[1:]
    command, context = COMMAND, COMMAND.make_context("libra-plan", list(words))
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    if context.args:  # `import` takes the facts that its formats ask for
        facts = facts_from_flags({**_facts(context.args), "model": "qwen2.5-7b"})
        lacking = [
            need
            for need in FORMATS[context.params["format_name"]].needs
            if getattr(facts, need) in (None, {})
        ]
        assert not lacking, f"{line} lacks {lacking}"
    return context


def test_every_command_shows_an_example():
    """An example is read before anything else."""
    without = [" ".join(path) for path, command in commands() if not shown(command.help)]
    assert without == []


@pytest.mark.parametrize(("path", "line"), EXAMPLES)
def test_every_example_of_the_help_is_understood(path, line):
    """An example that is refused is the first thing a newcomer sees."""
    assert line.startswith(f"libra-plan {path}".strip())
    parsed(line)


@pytest.mark.skipif(not DOCUMENTS[0].is_file(), reason="run against an installed package")
def test_every_command_of_the_documents_is_understood():
    """Documents are copied from, too."""
    lines = list(in_documents())
    assert len(lines) > 10
    for line in lines:
        parsed(line)


def test_a_wrong_example_would_be_found():
    """The check must be able to fail."""
    for line in (
        "libra-plan slove x",
        "libra-plan solve x --gpu 8",
        "libra-plan profile import csv x --out y --tp 1",
    ):
        with pytest.raises(Exception, match=r"slove|--gpu\b|lacks"):
            parsed(line)


def test_the_import_example_runs_as_shown(call, tmp_path):
    """With the file it speaks of in place, every flag that is needed must be there."""
    (line,) = shown(dict(commands())["profile", "import"].help)
    (tmp_path / "results").mkdir()
    shutil.copy(SAMPLES / "vllm_serve.jsonl", tmp_path / "results" / "run.json")
    ran = call(*shlex.split(line)[1:])
    assert ran.code == 0, ran.err
    assert (tmp_path / "profiles").is_dir()


def in_unit_files():
    """Find the commands of the timers and cron jobs that are there to be copied."""
    folder = ROOT / "examples" / "replan"
    service = (folder / "libra-plan-replan.service").read_text(encoding="utf-8")
    crontab = (folder / "crontab").read_text(encoding="utf-8")
    job = yaml.safe_load((folder / "cronjob.yaml").read_text(encoding="utf-8"))
    container = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
    yield re.search(r"ExecStart=\S*/(libra-plan .*)", service)[1]
    yield re.search(r"bin/(libra-plan .*?) >>", crontab)[1]
    yield shlex.join(container["command"])


def test_every_command_of_the_unit_files_is_understood():
    """A timer that was copied must not fail every minute for a flag that is no more."""
    if not (ROOT / "examples").exists():
        pytest.skip("the examples are not part of a wheel's tests")
    found = list(in_unit_files())
    assert len(found) == 3
    for line in found:
        parsed(line)
    assert "SuccessExitStatus=5" in (ROOT / "examples/replan/libra-plan-replan.service").read_text("utf-8")
