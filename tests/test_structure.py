"""Rules of the whole code base. What breaks one and is known stands in a list, which may only get shorter."""

from __future__ import annotations

import pytest
from structure import LISTS, ROOT, listed

if not (ROOT / "CONTRIBUTING.md").exists():
    pytest.skip("the source tree is not part of a wheel's tests", allow_module_level=True)

WHY = {
    "unreached_modules.txt": "no public function or command reaches it: delete it, or move it to benchmarks/",
    "duplicate_names.txt": "two modules define it: a name stands for one thing",
    "untested_modules.txt": "it has no test at the mirrored place (a/b/c.py: tests/a/b/test_c.py)",
    "hardware_constants.txt": "a number measured on one GPU belongs into profiles/hardware/*.yaml",
}


@pytest.mark.parametrize("name", LISTS)
def test_nothing_new_breaks_the_rule(name: str) -> None:
    """Code grows such things silently: nobody sees the whole of it."""
    new = LISTS[name]() - set(listed(name))
    assert not new, f"{sorted(new)}: {WHY[name]}"


@pytest.mark.parametrize("name", LISTS)
def test_the_list_names_nothing_that_is_mended(name: str) -> None:
    """A stale entry would let the same fault come back: `python tests/support/structure.py` takes it out."""
    stale = set(listed(name)) - LISTS[name]()
    assert not stale, f"take these out of tests/{name}: {sorted(stale)}"


@pytest.mark.parametrize("name", LISTS)
def test_the_list_is_in_order(name: str) -> None:
    """So that two people who shorten it do not meet."""
    assert listed(name) == sorted(set(listed(name)))
