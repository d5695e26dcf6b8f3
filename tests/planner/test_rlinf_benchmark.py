"""The comparison with RLinf runs from a checkout as it is."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "rlinf.py"
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="run against an installed package")


@pytest.fixture(scope="module")
def benchmark():
    """Load the script, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("rlinf_benchmark", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_file_it_takes_the_published_instances(benchmark, monkeypatch, capsys):
    """Nobody should have to look for the numbers that the comparison is about."""
    instances = benchmark.read(benchmark.INSTANCES)
    assert len(instances) > 20
    monkeypatch.setattr(
        benchmark, "read", lambda path: [each for each in instances if "e2e-weak-8" in each["id"]]
    )
    assert benchmark.main([]) == 0
    assert capsys.readouterr().out.endswith("1 instances, 0 worse than the peer or not exact\n")


@pytest.mark.parametrize("text", [None, "{", "[]", '{"instances": [{"id": "x"}]}'])
def test_a_wrong_file_is_told_in_one_line(benchmark, tmp_path, text):
    """A traceback says nothing to somebody who misspelt a path."""
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SystemExit, match=r"x\.json: .*rlinf_instances\.json") as left:
        benchmark.main([str(path)])
    assert "\n" not in str(left.value)
