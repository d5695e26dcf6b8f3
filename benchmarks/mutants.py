"""Count how many small faults the tests find: `mutants.py --sample 200 --seed 0 [--jobs 2]`.

Each mutant is the package with one operator, constant or condition changed (by Cosmic Ray's operators) in a
module of `planner/optimize`, `planner/verify`, `planner/controller` or `models`. A mutant is killed when a
test fails: first those of the module, then those of its package, then all that import it. Changes that no run
can notice (annotations, docstrings) are not counted. Mutants are made in a copy of the repository, where the
tests must pass before. Prints one JSON line a mutant as it ends, and the share killed at the end.
Needs `pip install cosmic-ray`.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("planner/optimize", "planner/verify", "planner/controller", "models")
LEFT_OUT = ("RemoveDecorator", "VariableReplacer", "VariableInserter")
"""Operators whose mutants cannot be imported, or need arguments of their own."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module: the occurrence of an operator."""

    module: str
    operator: str
    occurrence: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for one set of tests")
    parser.add_argument("--only", default="", help="modules whose path begins so")
    options = parser.parse_args()
    everything = [each for each in candidates() if each.module.startswith(options.only)]
    rng = np.random.default_rng(options.seed)
    order = [everything[at] for at in rng.permutation(len(everything))]
    chosen = list(take(order, options.sample))
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        places: queue.Queue[Path] = queue.Queue()
        for number in range(options.jobs):
            place = copied(Path(folder) / str(number))
            places.put(place)
        packages = sorted({str(Path("tests") / Path(each.module).parent) for each in chosen})
        if not passes(place, [each for each in packages if (place / each).is_dir()], 10 * options.timeout):
            raise SystemExit("the tests fail without any mutant: nothing could be said of mutants")
        with ThreadPoolExecutor(options.jobs) as pool:
            for mutant, outcome, diff in pool.map(lambda each: judged(each, places, options.timeout), chosen):
                outcomes[mutant] = outcome
                line = {"module": mutant.module, "operator": mutant.operator, "outcome": outcome}
                print(json.dumps({**line, **({} if outcome == "killed" else {"diff": diff})}), flush=True)
    killed = sum(outcome == "killed" for outcome in outcomes.values())
    print(
        json.dumps(
            {
                "mutants": len(outcomes),
                "of": len(everything),
                "seed": options.seed,
                "killed": killed,
                "share": round(killed / max(1, len(outcomes)), 4),
            }
        )
    )


def candidates() -> Iterator[Mutant]:
    """List every place where an operator applies."""
    modules = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    operators = {
        name: get_operator(name)()
        for name in sorted(operator_names())
        if not any(part in name for part in LEFT_OUT)
    }
    for path in modules:
        nodes = list(ast_nodes(get_ast(path.read_text())))
        for name, operator in operators.items():
            count = sum(len(list(operator.mutation_positions(node))) for node in nodes)
            for occurrence in range(count):
                yield Mutant(str(path.relative_to(ROOT)), name, occurrence)


def take(order: list[Mutant], number: int) -> Iterator[Mutant]:
    """Take the first mutants that a run can notice."""
    taken = 0
    for mutant in order:
        if taken == number:
            return
        before = (ROOT / mutant.module).read_text()
        after = mutated(mutant, before)
        if after is not None and meaning(before) != meaning(after):
            taken += 1
            yield mutant


def mutated(mutant: Mutant, code: str) -> str | None:
    changed: str | None = mutate_code(code, get_operator(mutant.operator)(), mutant.occurrence)
    return changed


def meaning(code: str) -> str:
    """Write down what runs, without annotations and docstrings; what cannot be parsed means nothing."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant("")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value = ast.Constant("")
    return ast.dump(tree)


def copied(place: Path) -> Path:
    names = ("cli", "planner", "models", "profiles", "src", "tests", "examples", "benchmarks", "docs")
    place.mkdir(parents=True)
    for name in names:
        leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, place / name, symlinks=True, ignore=leave)
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, place / name)
    return place


def judged(mutant: Mutant, places: queue.Queue[Path], timeout_s: float) -> tuple[Mutant, str, str]:
    """Run the tests against one mutant, in a copy that nobody else uses meanwhile."""
    place = places.get()
    file = place / mutant.module
    before = file.read_text()
    after = mutated(mutant, before) or before
    diff = "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), n=0))
    try:
        file.write_text(after)
        for tests in stages(place, mutant.module):
            if tests and not passes(place, tests, timeout_s):
                return mutant, "killed", diff
        return mutant, "survived", diff
    finally:
        file.write_text(before)
        places.put(place)


def stages(place: Path, module: str) -> Iterator[list[str]]:
    """List sets of tests: the module's, its package's, and those of other packages that import it."""
    path = Path(module)
    own = Path("tests") / path.parent / f"test_{path.stem}.py"
    yield [str(own)] if (place / own).is_file() else []
    package = Path("tests") / path.parent
    yield [str(package)] if (place / package).is_dir() else []
    name = "libra_plan." + ".".join(path.with_suffix("").parts)
    more = [
        file.relative_to(place)
        for file in sorted((place / "tests").rglob("test_*.py"))
        if name in file.read_text() or name.rpartition(".")[0] + " import" in file.read_text()
    ]
    yield [str(file) for file in more if package not in file.parents]


def passes(place: Path, tests: list[str], timeout_s: float) -> bool:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not torch",
        *tests,
    ]
    environment = {**os.environ, "PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        command,
        cwd=place,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        return process.wait(timeout_s) in (0, 5)  # 5: no test was collected
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return False


if __name__ == "__main__":
    main()
