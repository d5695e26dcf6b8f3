"""Findings about the code as a whole: modules that nothing reaches, names defined twice, missing tests.

Each finding that is known stands in a list in `tests/`. `python tests/support/structure.py` takes out of the
lists what is no longer true; it never adds anything.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

__all__ = ["LISTS", "ROOT", "duplicate_names", "hardware_constants", "listed", "unreached", "untested"]

ROOT = Path(__file__).parents[2]
_ROOMS = ("cli", "planner", "models", "profiles")
_ENTRIES = ("libra_plan", "libra_plan.cli.app", "libra_plan.cli.__main__")
_FOUND_BY_NAME = "libra_plan.planner.launchers."  # `emit` finds emitters by the name of their module
_GPU = re.compile(r"\b(?:A100|B200|GH200|H20|H100|H200|L40S?|MI300X|NVLink|PCIe)\b")
_FIGURE = re.compile(r"BANDWIDTH|EFFICIENCY|FLOPS|GIB_PER_S|GB_PER_S|LATENCY|_HOP_")


@cache
def _modules() -> dict[str, Path]:
    """Map every module of the package to its file."""
    found = {"libra_plan": ROOT / "src/libra_plan/__init__.py"}
    for name in ("errors", "notes"):
        found[f"libra_plan.{name}"] = ROOT / f"src/libra_plan/{name}.py"
    for room in _ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found["libra_plan." + ".".join(parts).removesuffix(".__init__")] = path
    return found


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def unreached() -> set[str]:
    """Name the modules that no public function and no command reaches, not even lazily."""
    modules = _modules()
    seen: set[str] = set()
    waiting = [*_ENTRIES, *_homes(), *(name for name in modules if name.startswith(_FOUND_BY_NAME))]
    while waiting:
        name = waiting.pop()
        if name in modules and name not in seen:
            seen.add(name)
            waiting += [*_imports(modules[name]), name.rpartition(".")[0]]
    return {_short(path) for name, path in modules.items() if name not in seen}


def _homes() -> Iterator[str]:
    """Name the modules of the public names."""
    for node in ast.walk(_tree(ROOT / "src/libra_plan/__init__.py")):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Constant) and str(node.value).startswith("libra_plan."):
            yield str(node.value).partition(":")[0]


def duplicate_names() -> set[str]:
    """Name the public classes and functions that are defined in more than one module."""
    places: defaultdict[str, set[Path]] = defaultdict(set)
    for path in _modules().values():
        for node in _tree(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    return {name for name, paths in places.items() if len(paths) > 1}


def untested() -> set[str]:
    """Name the modules without a test at the mirrored place: a/b/c.py is tested by tests/a/b/test_c.py."""
    found = set()
    for name, path in _modules().items():
        if path.name.startswith("__") or name in ("libra_plan.errors", "libra_plan.notes"):
            continue
        mirrored = ROOT / "tests" / path.relative_to(ROOT).parent / f"test_{path.name}"
        if not mirrored.exists():
            found.add(_short(path))
    return found


def hardware_constants() -> set[str]:
    """Name the numbers outside profiles/ that read as if they were measured on one GPU or one link."""
    found = set()
    for path in _modules().values():
        room = _short(path).partition("/")[0]
        if room not in ("profiles", "src"):
            found |= {f"{_short(path)}: {name}" for name in _figures(path)}
    return found


def _figures(path: Path) -> Iterator[str]:
    """Name constants with a number that are called like a hardware figure, or beside which a GPU is named."""
    lines, body = path.read_text(encoding="utf-8").splitlines(), _tree(path).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign):
            (target,) = node.targets
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        else:
            continue
        if not isinstance(target, ast.Name) or target.id != target.id.upper() or node.value is None:
            continue
        numbers = [
            n for n in ast.walk(node.value) if isinstance(n, ast.Constant) and type(n.value) in (int, float)
        ]
        last = node.end_lineno or node.lineno
        if after is not None and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            last = after.end_lineno or last
        told = "\n".join(lines[node.lineno - 1 : last])
        if numbers and (_FIGURE.search(target.id) or _GPU.search(told)):
            yield target.id


LISTS: dict[str, Callable[[], set[str]]] = {
    "unreached_modules.txt": unreached,
    "duplicate_names.txt": duplicate_names,
    "untested_modules.txt": untested,
    "hardware_constants.txt": hardware_constants,
}
"""The list in `tests/` of each kind of finding."""


def listed(name: str) -> list[str]:
    """Read one of the lists."""
    return (ROOT / "tests" / name).read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    for name, find in LISTS.items():
        left = sorted(set(listed(name)) & find())
        (ROOT / "tests" / name).write_text("".join(f"{line}\n" for line in left), encoding="utf-8")
        print(f"{name}: {len(left)} left")
