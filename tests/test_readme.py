"""The README shows what the command prints, not what somebody once typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

if not (ROOT / "README.md").exists():
    pytest.skip("the README is not part of a wheel's tests", allow_module_level=True)


def _printed(*arguments: str) -> str:
    code = "from libra_plan.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_shown_plan_is_what_solve_prints() -> None:
    """Regenerate with: libra-plan solve profiles/ --gpus 8 --picture docs/plan.svg, and paste."""
    shown = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown is not None
    assert shown[1].rstrip() == _printed("solve", "profiles/", "--gpus", "8").rstrip()


def test_every_linked_file_is_there() -> None:
    """A newcomer follows the links first."""
    inside = [page for folder in ("docs", "benchmarks", "examples") for page in (ROOT / folder).rglob("*.md")]
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *inside):
        for target in re.findall(r"\]\(([^)#:{]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
