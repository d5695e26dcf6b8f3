"""What the tests of the command share: a small workload, a cache of their own, runs in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_run import Ran, train_task, write_workload

from libra_plan.cli.app import run
from libra_plan.profiles.catalog import shipped_folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep fits between tests, apart from the user's own cache."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_surroundings(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep settings, profiles and caches of whoever runs the tests out of them."""
    monkeypatch.setenv("LIBRA_PLAN_CACHE", str(cache))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "no-data"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a folder with two small training tasks."""
    return write_workload(tmp_path / "work", [train_task("a"), train_task("b", model="1.5b", weight=2.0)])


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run the command in this process."""

    def called(*words: object) -> Ran:
        capfd.readouterr()
        code = run([str(word) for word in words])
        out, err = capfd.readouterr()
        return Ran(code, out, err)

    return called


@pytest.fixture
def one_profile(tmp_path: Path) -> Path:
    """Copy one shipped profile to a folder of its own."""
    name = "h200-qwen2.5-0.5b-decode"
    target = tmp_path / "one" / name
    target.mkdir(parents=True)
    for each in (shipped_folder() / name).iterdir():
        (target / each.name).write_bytes(each.read_bytes())
    return tmp_path / "one"
