"""docs/routing.md must say what the committed results say, and the results must be what the study gives."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from libra_plan.planner.simulate.world import Drift, Outcomes

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("routing_study", ROOT / "benchmarks" / "routing.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["routing_study"] = module
    spec.loader.exec_module(module)
    return module


study = load()
RESULTS = json.loads(study.RESULTS.read_text(encoding="utf-8"))


def test_the_page_is_what_the_results_make() -> None:
    """A figure changed by hand, or results without their page, must not pass."""
    assert study.PAGE.read_text(encoding="utf-8") == study.page(RESULTS)


def test_the_results_hold_every_case_of_the_study() -> None:
    """A case that was left out would flatter somebody."""
    keys = ("world", "costs", "mode", "mix", "rule", "telling")
    wanted = [(c.name, c.costs, c.mode, c.mix.name, c.rule, c.telling) for c in study.every_case()]
    assert [tuple(row[key] for key in keys) for row in RESULTS["rows"]] == wanted


def test_the_law_meets_the_two_accuracies_that_fix_it() -> None:
    """The defaults are derived from published figures: whoever changes the law must fix them anew."""
    law = Drift(first_mean_tokens=11_500, sigma=1.0, max_tokens=40_960).law(11_500.0)
    told = sys.modules["routing_kinds"].what_can_be_told(law, Outcomes(prompts=8, per_prompt=16), returns=2)
    assert told[0] == pytest.approx(0.652, abs=0.003)
    assert told[2] == pytest.approx(0.911, abs=0.003)
    assert list(told) == sorted(told)


@pytest.mark.parametrize("rule", ["emptiest", "mlfq", "c-mlfq", "oracle"])
def test_the_first_seed_comes_out_as_committed(rule: str) -> None:
    """Results that the code no longer gives would be claims about another simulator."""
    (case,) = (
        case
        for case in study.every_case()
        if (case.name, case.costs, case.mode, case.mix.name, case.rule, case.telling)
        == ("search-512-early", "steep", "batch", "libra", rule, None)
    )
    (row,) = (
        row
        for row in RESULTS["rows"]
        if (row["world"], row["costs"], row["mode"], row["mix"], row["rule"], row["telling"])
        == ("search-512-early", "steep", "batch", "libra", rule, None)
    )
    again = study.run(case, seeds=1)
    for key in ("tokens_per_s", "step_s", "right", "moved"):
        assert again[key][0] == pytest.approx(row[key][0], rel=1e-3)
