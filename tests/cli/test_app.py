"""The program as a whole: help, exit codes, streams, and what it loads before it is needed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from cli_run import PROGRAM, environment, program

import libra_plan
from libra_plan.cli import app as app_module
from libra_plan.cli.app import run

VERBS = (
    ("solve",),
    ("validate",),
    ("explain",),
    ("emit",),
    ("launch",),
    ("profile",),
    ("profile", "fit"),
    ("profile", "check"),
    ("profile", "predict"),
    ("profile", "measure"),
    ("profile", "import"),
)
HEAVY = {"numpy", "scipy", "ortools", "pulp", "highspy", "torch", "pynvml", "rich", "yaml", "msgspec"}


@pytest.mark.parametrize("verb", [(), *VERBS], ids=" ".join)
def test_help_has_an_example(call, verb):
    """Someone new learns a verb from one line that works; the line must start like the verb."""
    ran = call(*verb, "--help")
    assert ran.code == 0
    assert ran.err == ""
    assert f"Example: libra-plan {' '.join(verb)}".strip() in " ".join(ran.out.split())


@pytest.mark.parametrize("words", [("--help",), ("solve", "--help"), ("profile", "predict", "--help")])
def test_help_loads_nothing_heavy(words):
    """Help and completion must come at once, so no solver or reader may be loaded for them."""
    code = (
        "import sys\nfrom libra_plan.cli.app import run\n"
        f"run({list(words)!r})\n"
        f"print(sorted({HEAVY!r} & {{name.partition('.')[0] for name in sys.modules}}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_version(call):
    """Reports of faults need the version."""
    assert call("--version").out == f"libra-plan {libra_plan.__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("slove",), "slove"),
        (("solve",), "profiles"),
        (("solve", "profiles", "--gpu", "8"), "did you mean `--gpus`?"),
        (("solve", "profiles", "--gpus", "0"), "--gpus"),
        (("solve", "profiles", "--gpus", "eight"), "eight"),
        (("solve", "profiles", "--gpus", "8", "--policy", "fast"), "'throughput', 'max-min'"),
        (("solve", "profiles", "--gpus", "8", "--time-limit=-1"), "--time-limit"),
        (
            ("solve", "profiles", "--gpus", "8", "--local"),
            "one of gpus (--gpus), cluster (--cluster) and local (--local)",
        ),
        (("solve", "profiles", "--gpus", "8", "--gpu-class", "b300"), "h200_sxm"),
        (("solve", "profiles", "--cluster", "none.yaml"), "none.yaml: no such file"),
        (("solve", "nowhere", "--gpus", "8"), "nowhere: no such profiles folder"),
        (("solve", "profiles", "--gpus", "8", "--from", "none.json"), "none.json: no such file"),
        (("validate", "nowhere.yaml"), "nowhere.yaml: no such file"),
        (("emit", "sulrm", "m.json"), "sulrm"),
        (("emit",), "torchrun"),
        (("launch", "none"), "none: no such file"),
        (("profile", "fit", "nowhere"), "nowhere"),
        (("profile", "predict", "profiles", "--points", "none.csv"), "none.csv: no such file"),
        (("--config", "none.yaml", "validate", "profiles"), "none.yaml: no such file"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_a_mistake_is_one_line(call, words, said):
    """A mistake is told in one line on stderr with the way out, never by a traceback; exit 2."""
    ran = call(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("libra-plan: ")
    assert said.lower() in ran.err.lower()


def test_an_empty_folder_is_refused(call, tmp_path):
    """A folder without a workload plans nothing; saying so beats an empty plan."""
    (tmp_path / "empty").mkdir()
    ran = call("solve", tmp_path / "empty", "--gpus", 8)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "empty" in ran.err


def test_our_own_faults_show_a_traceback(monkeypatch, folder):
    """A defect must be reported with its traceback, so it may not be dressed up as user's mistake."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(libra_plan, "solve", broken)
    with pytest.raises(ZeroDivisionError):
        run(["solve", str(folder), "--gpus", "2"])


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize(
    "words",
    [
        ("solve", "work", "--gpus", "4"),
        ("explain", "work", "--gpus", "4"),
        ("validate", "work"),
        ("emit", "--list"),
        ("profile", "fit", "one"),
        ("profile", "check", "one"),
        ("profile", "import", "--list"),
    ],
    ids=" ".join,
)
def test_formats_parse_and_stdout_holds_only_results(call, folder, one_profile, words, form):
    """Scripts read stdout: it must parse as it is, and both forms must say the same."""
    ran = call(*words, "--format", form)
    assert ran.code == 0, ran.err
    parsed = json.loads(ran.out) if form == "json" else yaml.safe_load(ran.out)
    assert parsed
    other = call(*words, "--format", "json")
    assert _stable(parsed) == _stable(json.loads(other.out))


def _stable(data: object) -> object:
    """Leave the sign of exactness out: YAML 1.1 readers take `1e-05` for text."""
    if isinstance(data, dict):
        return {key: _stable(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_stable(value) for value in data]
    if isinstance(data, str):
        try:
            return float(data)
        except ValueError:
            return data
    return float(data) if isinstance(data, int) and not isinstance(data, bool) else data


def test_piped_output_is_plain(folder):
    """Logs and pipes get no colour, no boxes and no progress line."""
    ran = program("solve", folder, "--gpus", 4)
    assert ran.code == 0
    assert "\x1b" not in ran.out + ran.err
    assert "\r" not in ran.out + ran.err
    assert not set("─│┌┐└┘━┃╭╮╰╯") & set(ran.out)


def test_a_reader_that_leaves_is_no_fault(folder):
    """`libra-plan … | head -1` must end without a word about pipes."""
    done = subprocess.run(
        [
            "bash",
            "-c",
            '"$@" | head -1; echo "${PIPESTATUS[0]}"',
            "-",
            *PROGRAM,
            "profile",
            "import",
            "--list",
        ],
        env=environment(PYTHONUNBUFFERED="1"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.split()[-1] in ("0", "141")


def test_a_closed_stdout_is_told_apart_from_success(folder):
    """A reader that left before anything was written is exit 141, as for any other program."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*PROGRAM, "validate", str(folder)],
            env=environment(),
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_is_one_line(folder):
    """A plan that could not be written must not look like success, nor like a defect of ours."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "validate", str(folder)],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.decode().startswith("libra-plan: the result cannot be written")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}])
def test_paths_of_any_kind(tmp_path, folder, locale):
    """Spaces, letters of any script and the C locale occur together on real clusters."""
    odd = tmp_path / "mit Ümlaut und 空白"
    folder.rename(odd)
    ran = program("solve", odd, "--gpus", 2, "--out", tmp_path / "läuft hier", **locale)
    assert ran.code == 0, ran.err
    assert "× fair share" in ran.out
    assert (tmp_path / "läuft hier" / "manifest.json").is_file()
    ran = program("validate", tmp_path / "läuft nicht.yaml", **locale)
    assert ran.code == 2
    assert ran.err.count("\n") == 1


def test_completion_knows_verbs_and_options(tmp_path):
    """Shell completion is how people find verbs; it must work from the installed name."""

    def completed(words: str, at: int) -> list[str]:
        more = {"_LIBRA_PLAN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        return program(**more).out.split()

    assert completed("libra-plan so", 1) == ["solve"]
    assert "--policy" in completed("libra-plan solve --po", 2)
    assert set(completed("libra-plan profile ", 2)) == {
        "fit",
        "check",
        "predict",
        "measure",
        "import",
        "drift",
    }


def test_ctrl_c_while_a_module_is_loaded_is_no_defect(call, folder, monkeypatch):
    """Modules in C turn it into an ImportError, which looked like a broken installation."""

    def loaded(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(app_module, "_pressed", [])
    monkeypatch.setattr(libra_plan, "validate", loaded)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        app_module.hear_interrupts()
        ran = call("validate", folder)
    finally:
        signal.signal(signal.SIGINT, before)
    assert ran.code == 130
    assert ran.err.rstrip() == "libra-plan: interrupted"
