"""The worked examples of CONTRIBUTING.md, applied to a copy of the package and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import libra_plan

GUIDE = Path(__file__).resolve().parent.parent / "CONTRIBUTING.md"
SUPPORT = Path(__file__).resolve().parent / "support"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GUIDE.is_file(), reason="these tests run without the checkout"),
]


def run(*command: str, cwd: Path, given: str | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        input=given,
        env={**os.environ, "PYTHONPATH": f"{cwd}{os.pathsep}{SUPPORT}", "GIT_CEILING_DIRECTORIES": str(cwd)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def example(chapter: str, language: str) -> str:
    """Find the one fenced block of a language in a chapter."""
    text = GUIDE.read_text(encoding="utf-8")
    body = text.partition(f"\n## {chapter}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", body, flags=re.DOTALL | re.MULTILINE)
    return str(block)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Copy the package, so that an example can change it."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(libra_plan.__file__).parent, tmp_path / "libra_plan", ignore=ignored)
    return tmp_path


def apply_diff(copy: Path, diff: str) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    run("git", "apply", "--directory=libra_plan", "-", cwd=copy, given=diff)


LAUNCHER = """
from plans import colocated, single_node
from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.base import find_emitter

emitter = find_emitter("rank-table")
rows = emitter.emit(colocated())["ranks.csv"].splitlines()
assert rows[:2] == ["task,role,rank,node,gpu", "ppo,actor,0,n0,0"], rows
assert len(rows) == 1 + 8 + 8 + 2, rows
try:
    emitter.emit(single_node())
except ManifestError as error:
    assert "grpo/env: roles without GPUs" in error.message, error.message
else:
    raise AssertionError("a CPU-only role was not refused")
"""


def test_the_launcher_of_the_guide_is_found_and_emits(copy: Path) -> None:
    """Whoever follows the chapter gets a launcher that emits, and refuses what it cannot say."""
    source = example("Add a launcher", "python")
    path = source.splitlines()[0].removeprefix("# ")
    (copy / "libra_plan" / path).write_text(source, encoding="utf-8")
    run(sys.executable, "-c", LAUNCHER, cwd=copy)


ROLE_KIND = """
from pathlib import Path
from libra_plan.models.clusters import uniform_cluster
from libra_plan.planner.pricing import price_workload
from libra_plan.profiles.catalog import load_folder

problem = price_workload(load_folder(Path("profiles")), uniform_cluster(8, "h200_sxm", 143771.0))
roles = {role.kind: role for task in problem.tasks for role in task.roles}
assert "reference" not in roles, roles.keys()
assert roles["teacher"].options, roles["teacher"].refusals
"""


def test_the_role_kind_of_the_guide_is_priced(copy: Path) -> None:
    """Whoever follows the chapter gets a role kind that a workload may use and that has a price."""
    apply_diff(copy, example("Add a role kind", "diff"))
    folder = copy / "profiles"
    shutil.copytree(copy / "libra_plan" / "profiles", folder, ignore=shutil.ignore_patterns("*.py"))
    workload = folder / "workload.yaml"
    text = workload.read_text(encoding="utf-8")
    assert "kind: reference" in text
    workload.write_text(text.replace("kind: reference", "kind: teacher"), encoding="utf-8")
    run(sys.executable, "-c", ROLE_KIND, cwd=copy)


POLICY = """
from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import exactly
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.problem import Coupling, CouplingKind, Policy, Problem, Role, StageOption, Task
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.verify import violations_of

GPUS = 8


def task(name, weight, seconds):
    options = tuple(
        StageOption("h200", Layout(), n, exactly(seconds(n), "s"), 1e4, 1e4, 1e3, 1e4, None, None)
        for n in range(1, GPUS + 1)
    )
    return Task(name, weight, (Role("actor", "actor_train", options),), Coupling(CouplingKind.SYNC))


def worst(policy):
    gpus = tuple(Gpu(GpuId("n0", i), "h200", 1e5) for i in range(GPUS))
    tasks = (task("cubic", 1.0, lambda n: 100.0 / n**3), task("flat", 1.0, lambda n: 100.0))
    problem = Problem(Cluster("lab", (Node("n0", gpus),)), tasks, policy=policy)
    plan = solve_problem(problem).require_plan()
    assert violations_of(problem, plan) == []
    rates = {running.task: running.normalised for running in plan.running}
    return min(rates.get(each.id, 0.0) for each in tasks)


assert worst(Policy.THROUGHPUT) == 0.0, worst(Policy.THROUGHPUT)
assert worst(Policy.HALF_SHARE) >= 0.5, worst(Policy.HALF_SHARE)
"""


def test_the_policy_of_the_guide_keeps_its_floor(copy: Path) -> None:
    """Whoever follows the chapter gets a policy that plans differently, and as it says."""
    apply_diff(copy, example("Add a policy", "diff"))
    run(sys.executable, "-c", POLICY, cwd=copy)
