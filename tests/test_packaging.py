"""The package as users get it: what becomes importable, what a wheel holds, what the linters catch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import libra_plan

CHECKOUT = Path(__file__).resolve().parent.parent
PACKAGE = CHECKOUT / "src" / "libra_plan"
ROOMS = ("planner", "models", "profiles", "cli")

needs_checkout = pytest.mark.skipif(not PACKAGE.is_dir(), reason="these tests run without the checkout")


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command and return what it did; its output is shown when an assertion on it fails."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def need(*modules: str) -> None:
    """Skip where a tool of the `test` extra is missing; in CI that is a failure."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing and os.environ.get("CI"):
        pytest.fail(f"CI must have {missing}: they are in the `test` extra")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (they are in the `test` extra)")


@pytest.fixture(scope="session")
def copy_of_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what is built, links kept, so that no build output lands in the checkout."""
    copy = tmp_path_factory.mktemp("checkout") / "libra-plan"
    unbuilt = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(CHECKOUT, copy, symlinks=True, ignore=unbuilt)
    return copy


@pytest.fixture(scope="session")
def distributions(copy_of_checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, a wheel from it (`from_sdist/`) and a wheel from the tree (`from_tree/`)."""
    need("build", "setuptools")
    out = tmp_path_factory.mktemp("distributions")
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir")
    for folder, options in (("from_sdist", ()), ("from_tree", ("--wheel",))):
        done = run(*build, out / folder, *options, cwd=copy_of_checkout)
        assert done.returncode == 0, done.stdout + done.stderr
    return out


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_not_importable_by_their_bare_name(room: str, tmp_path: Path) -> None:
    """A user's own `models` package must never meet ours."""
    code = f"import importlib.util; print(importlib.util.find_spec({room!r}))"
    done = run(sys.executable, "-I", "-c", code, cwd=tmp_path)
    assert done.stdout.strip() == "None", done.stdout + done.stderr


@needs_checkout
@pytest.mark.parametrize("room", ROOMS)
def test_each_link_leads_to_its_room(room: str) -> None:
    """A link to a wrong or missing place would ship an empty or a wrong room."""
    assert (PACKAGE / room).resolve() == CHECKOUT / room or not (CHECKOUT / room).exists()
    assert (PACKAGE / room / "__init__.py").is_file()


@needs_checkout
def test_every_folder_with_code_is_a_package() -> None:
    """A folder without `__init__.py` works in the checkout and is missing from the wheel."""
    folders = {path.parent for room in ROOMS for path in (PACKAGE / room).rglob("*.py")}
    assert len(folders) >= len(ROOMS)
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_facade_exports_exactly_its_public_names() -> None:
    """A name that is public by accident becomes an API that cannot be taken back."""
    modules = {*ROOMS, "errors", "notes"}
    public = (
        {name for name in vars(libra_plan) if not name.startswith("_")}
        - modules
        - {"annotations", "TYPE_CHECKING"}
    )
    declared = set(libra_plan.__all__)
    assert len(declared) == len(libra_plan.__all__)
    assert public <= declared, f"public but not in __all__: {public - declared}"
    assert [name for name in declared if not hasattr(libra_plan, name)] == []


@needs_checkout
@pytest.mark.slow
def test_wheel_and_sdist_hold_the_whole_package(distributions: Path, copy_of_checkout: Path) -> None:
    """The wheel from the sdist equals the one from the tree, and lacks no module or data file."""
    from_sdist = contents(next(distributions.glob("from_sdist/*.whl")))
    assert from_sdist == contents(next(distributions.glob("from_tree/*.whl")))
    kinds = (".py", ".yaml", ".json", ".csv", ".md")
    package = copy_of_checkout / "src" / "libra_plan"
    sources = [package, *(package / room for room in ROOMS)]
    wanted = {
        f"libra_plan/{path.relative_to(package)}"
        for source in sources
        for path in source.rglob("*")
        if path.suffix in kinds and "__pycache__" not in path.parts
    }
    assert from_sdist == wanted | {"libra_plan/py.typed"}


READ_INSTALLED = """
import sys
sys.path.insert(0, sys.argv[1])
from importlib.metadata import distribution
from importlib.resources import files
import libra_plan, libra_plan.planner.problem, libra_plan.planner.plan, libra_plan.models.topology
assert libra_plan.__file__.startswith(sys.argv[1]), libra_plan.__file__
assert libra_plan.__version__ == distribution("libra-plan").version
def walk(folder):
    for entry in folder.iterdir():
        yield from walk(entry) if entry.is_dir() else [entry]
for entry in walk(files("libra_plan.profiles")):
    if not entry.name.endswith((".py", ".pyc")):
        print(len(entry.read_bytes()), str(entry))
"""


@needs_checkout
@pytest.mark.slow
def test_installed_wheel_works_outside_the_checkout(
    distributions: Path, copy_of_checkout: Path, tmp_path: Path
) -> None:
    """What is published must import and hold its profiles without the checkout at hand."""
    need("pip")
    site, wheel = tmp_path / "site", next(distributions.glob("from_sdist/*.whl"))
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps")
    installed = run(*pip, "--target", site, wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    done = run(sys.executable, "-I", "-c", READ_INSTALLED, site, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    sizes = dict(reversed(line.split(" ", 1)) for line in done.stdout.splitlines())
    for path in (copy_of_checkout / "profiles").rglob("*"):
        if path.suffix in (".yaml", ".csv"):
            installed_copy = site / "libra_plan" / path.relative_to(copy_of_checkout)
            assert sizes[str(installed_copy)] == str(path.stat().st_size)


PLANTED = [
    ("planner/runtime/moves.py", "import subprocess\n\nsubprocess.run(['true'])\n"),
    ("models/costs/memory.py", "from pynvml import nvmlInit\n\nnvmlInit()\n"),
    ("planner/verify/verify.py", "from ortools.sat.python import cp_model\n\ncp_model.CpModel()\n"),
    ("planner/configurations/pareto.py", "import pulp\n\npulp.LpProblem()\n"),
    ("models/rollout/makespan.py", "import torch\n\ntorch.zeros(1)\n"),
    ("planner/runtime/journal.py", "import time\n\ntime.time()\n"),
    ("planner/telemetry/simulated.py", "import random\n\nrandom.random()\n"),
    ("models/training.py", "from numpy import random\n\nrandom.rand()\n"),
]
ALLOWED = [
    ("planner/runtime/launch.py", PLANTED[0][1]),
    ("planner/telemetry/smi.py", PLANTED[0][1]),
    ("planner/telemetry/nvml.py", PLANTED[1][1]),
    ("planner/optimize/cpsat.py", PLANTED[2][1]),
    ("planner/optimize/lp.py", PLANTED[3][1]),
    ("profiles/measure/runner.py", PLANTED[4][1]),
    ("planner/telemetry/simulated.py", "import random\n\nrandom.Random(1)\n"),
]


def lint(snippet: str, path: str) -> subprocess.CompletedProcess[str]:
    need("ruff")
    source = CHECKOUT / path
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", "TID251"]
    return subprocess.run(
        [*command, "--stdin-filename", str(source), "-"],
        cwd=CHECKOUT,
        input=snippet,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@needs_checkout
@pytest.mark.parametrize(("path", "snippet"), PLANTED)
def test_a_banned_import_is_caught(path: str, snippet: str) -> None:
    """A ban that nothing trips is not a ban: each rule is shown a violation."""
    done = lint(snippet, path)
    assert done.returncode == 1
    assert "TID251" in done.stdout


@needs_checkout
@pytest.mark.parametrize(("path", "snippet"), ALLOWED)
def test_the_module_meant_for_it_may_import_it(path: str, snippet: str) -> None:
    """The bans name one module each; that module must stay free to do its work."""
    done = lint(snippet, path)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_checkout
@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("models/planted.py", "import libra_plan.planner.problem"),
        ("profiles/planted.py", "import libra_plan.models.topology"),
        ("planner/problem.py", "import libra_plan.planner.plan"),
    ],
)
def test_an_upward_import_is_caught(path: str, line: str, copy_of_checkout: Path, tmp_path: Path) -> None:
    """A layer contract that names a wrong module would be kept for ever."""
    need("importlinter")
    package = tmp_path / "src" / "libra_plan"
    shutil.copytree(copy_of_checkout / "src" / "libra_plan", package)
    shutil.copy(copy_of_checkout / "pyproject.toml", tmp_path)
    command = (Path(sys.executable).with_name("lint-imports"), "--no-cache")
    clean = run(*command, cwd=tmp_path, PYTHONPATH=str(tmp_path / "src"))
    assert clean.returncode == 0, clean.stdout + clean.stderr
    with (package / path).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    broken = run(*command, cwd=tmp_path, PYTHONPATH=str(tmp_path / "src"))
    assert broken.returncode == 1, broken.stdout + broken.stderr
    assert "BROKEN" in broken.stdout
