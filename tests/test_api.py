"""The public API: what is documented is there, what is there is documented, and the examples run."""

from __future__ import annotations

import builtins
import doctest
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from api_page import documented, page, sections_of

import libra_plan as lp

ROOT = Path(__file__).parents[1]
ENTRIES = dict(documented())
DOCUMENTS = ("README.md", "docs/api.md")

if not (ROOT / "docs" / "api.md").exists():
    pytest.skip("the documents are not part of a wheel's tests", allow_module_level=True)


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run examples in a folder with nothing but the shipped profiles and examples."""
    for name in ("profiles", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "no-data"))
    monkeypatch.chdir(tmp_path)


def test_the_page_is_what_the_docstrings_say() -> None:
    """Regenerate with: python tests/support/api_page.py > docs/api.md."""
    assert (ROOT / "docs" / "api.md").read_text(encoding="utf-8") == page()


def test_every_public_name_is_on_the_page_and_no_other() -> None:
    """Whoever reads the page must find all of it in the package."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    told = {name.partition(".")[0] for name in re.findall(r"^(?:### |- )`([A-Za-z_.]+)`", text, re.MULTILINE)}
    public = {name for name in lp.__all__ if not name.startswith("__")}
    assert public <= told
    assert set(re.findall(r"^### `(\w+)`", text, re.MULTILINE)) <= public


def test_public_names_load_from_where_the_table_says() -> None:
    """A module that moved must not leave a name behind that breaks when it is first used."""
    for name in lp.__all__:
        assert getattr(lp, name) is not None
        assert name in dir(lp)
    with pytest.raises(AttributeError, match="slove"):
        lp.slove  # noqa: B018


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_says_what_it_takes_returns_and_raises(name: str) -> None:
    """A signature alone does not say units, defaults or what can go wrong."""
    entry, sections = ENTRIES[name], sections_of(ENTRIES[name])
    assert len(sections[""]) > 10
    assert "Examples" in sections
    assert "+SKIP" not in sections["Examples"], "an example that no test runs will be wrong soon"
    if inspect.isclass(entry):
        return
    takes = [p for p in inspect.signature(entry).parameters.values() if p.name != "self"]
    told = re.findall(r"\w+", " ".join(re.findall(r"^\S.*$", sections.get("Parameters", ""), re.MULTILINE)))
    assert {each.name for each in takes} <= set(told)
    returns = inspect.signature(entry).return_annotation
    assert "Returns" in sections or returns in ("None", None)
    assert "Raises" in sections


@pytest.mark.parametrize("name", ENTRIES)
def test_every_error_that_is_named_can_be_caught(name: str) -> None:
    """Whoever reads that a function raises an error writes `except lp.ThatError`."""
    raises = sections_of(ENTRIES[name]).get("Raises", "")
    for error in re.findall(r"^[A-Z]\w+$", raises, re.MULTILINE):
        assert issubclass(getattr(builtins, error, None) or getattr(lp, error), Exception)
        assert hasattr(builtins, error) or error in lp.__all__


@pytest.mark.parametrize("name", ENTRIES)
def test_the_example_of_every_entry_runs(name: str) -> None:
    """An example that does not run is worse than none."""
    finder = doctest.DocTestFinder(recurse=False)
    tests = finder.find(ENTRIES[name], name, module=False, globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    said: list[str] = []
    for test in tests:
        runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_in_documents_runs(document: str) -> None:
    """The quick start is what a newcomer types first."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "optimal" in done.stdout


def test_importing_the_package_is_quick() -> None:
    """Training loops import it: nothing heavy may come along."""
    code = (
        "import sys, libra_plan; ours = [m for m in sys.modules if m.startswith('libra_plan')]; "
        "print(len(ours), 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
