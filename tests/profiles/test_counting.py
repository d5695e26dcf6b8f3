"""Numbers with their nouns."""

import ast
import re
from pathlib import Path

import pytest

import libra_plan.cli
from libra_plan.profiles.counting import counted


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "row", "0 rows"),
        (1, "row", "1 row"),
        (2, "usable GPU", "2 usable GPUs"),
        (1, "GPU class", "1 GPU class"),
        (2, "policy", "2 policies"),
        (2, "day", "2 days"),
    ],
)
def test_one_is_not_many(number, noun, text):
    """`1 rows are set aside` reads like a program that does not look."""
    assert counted(number, noun) == text


def test_an_unusual_plural_is_given():
    """English has them."""
    assert counted(2, "GPU class", "GPU classes") == "2 GPU classes"


def test_the_command_counts_in_no_other_way():
    """A length put before a plural by hand is wrong for one."""
    package = Path(libra_plan.cli.__file__).parent.parent
    for name in ("cli/profile_verbs.py", "planner/report/profile_tables.py", "planner/report/plan_text.py"):
        path = package / name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = ast.unparse(node)
                found = re.search(r"\{len\([^}]*\)\} [A-Za-z ]*s\b", text)
                assert not found, f"{path}:{node.lineno}: {text}"
