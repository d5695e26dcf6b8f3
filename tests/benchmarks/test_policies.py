"""The policy benchmark must solve what it says: the collapsed LP is Gavel's, and unchanged means no move."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


gavel = load("policies_gavel")
sia = load("policies_sia")


def rates(seed: int):
    rng = np.random.default_rng(seed)
    kinds = [(f"j{number}", size) for number in range(5) for size in (1, 2, 4, 8)]
    alone = {(name, kind): float(rng.uniform(1.0, 9.0)) for name in gavel.TYPES for kind in kinds}
    pairs = {}
    for name in gavel.TYPES:
        for one in kinds:
            for two in kinds:
                if one[1] == two[1] and one <= two and rng.random() < 0.7:
                    shares = rng.uniform(0.3, 0.8, 2) if one != two else np.full(2, rng.uniform(0.3, 0.8))
                    both = (alone[name, one] * shares[0], alone[name, two] * shares[1])
                    pairs[name, one, two], pairs[name, two, one] = both, both[::-1]
    return gavel.Rates(alone, pairs)


@pytest.mark.parametrize("pairs", [False, True])
def test_one_variable_per_kind_reaches_what_one_per_job_does(pairs: bool) -> None:
    """Collapsing like jobs must not change the optimum, else the comparison is of two problems."""
    for seed in range(3):
        few, many = (
            gavel.solve_gavel(
                rates(seed), 24, seed, pairs=pairs, rounds=1, single=False, job_by_job=job_by_job
            )
            for job_by_job in (False, True)
        )
        assert few.worst == pytest.approx(many.worst, rel=1e-6)


def test_all_levels_raise_the_rest_beyond_the_worst() -> None:
    """Water filling keeps the worst level and leaves nobody lower than one level does."""
    for seed in range(3):
        first = gavel.solve_gavel(rates(seed), 24, seed, pairs=True, rounds=1, single=False)
        every = gavel.solve_gavel(rates(seed), 24, seed, pairs=True, rounds=None, single=False)
        assert every.worst == pytest.approx(first.worst, rel=1e-6)
        assert every.mean <= first.mean * (1 + 1e-6)  # the sum after one level is the largest sum


@pytest.mark.parametrize("pairs", [False, True])
def test_the_dual_says_that_no_shares_raise_the_worst_further(pairs: bool) -> None:
    """A goal above the optimum cannot be met: the bound printed beside it must hold, and be met."""
    for seed in range(3):
        found = gavel.solve_gavel(rates(seed), 24, seed, pairs=pairs, rounds=1, single=False)
        assert found.worst <= found.bound <= found.worst * (1 + 1e-6)


def sia_round(seed: int, jobs: int = 40):
    rng = np.random.default_rng(seed)
    columns = sia.configs(1)
    gpus = np.array([config[2] for config in columns])
    goodput = gpus[None, :] ** rng.uniform(0.4, 0.95, (jobs, 1)) * rng.uniform(0.8, 1.2, (jobs, len(columns)))
    goodput /= goodput.min(axis=1, keepdims=True)
    drawn = sia.Jobs(goodput, rng.uniform(600, 7200, jobs), np.ones(jobs), np.full(jobs, 60.0))
    return drawn, columns, sia.next_round(drawn, columns, 1, np.full(jobs, -1), goodput)


def test_sia_has_its_own_number_of_configurations() -> None:
    """Its 64-GPU cluster has 19, as Sia counts them."""
    assert len(sia.configs(1)) == 19


def test_sias_problem_is_solved_as_well_as_by_highs() -> None:
    """Two solvers, one objective, and room kept."""
    for seed in range(3):
        _, _, at = sia_round(seed)
        ours, bound = sia.solve_ours(at, np.full(len(at.values), -1))
        highs, _ = sia.solve_highs(at, gap=1e-6)
        assert at.objective(ours) == pytest.approx(at.objective(highs), rel=1e-4)
        assert bound <= at.objective(ours) * (1 + 1e-9)
        taken = at.demands[ours[ours >= 0]].sum(axis=0)
        assert (taken <= at.room).all()


def test_an_unchanged_round_moves_nobody() -> None:
    """Sia's own code moves 1 to 90 jobs here."""
    drawn, columns, at = sia_round(7)
    now, _ = sia.solve_ours(at, np.full(len(at.values), -1))
    again, _ = sia.solve_ours(sia.next_round(drawn, columns, 1, now, drawn.goodput), now)
    assert (again == now).all()
