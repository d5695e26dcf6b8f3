"""Gavel's max-min policy on its own throughputs, as an LP over time fractions by HiGHS.

What is solved is what Gavel's `max_min_fairness_packed` solves: which share of the time each job, or
each pair of jobs that share their GPUs, spends on each GPU type, so that the worst job's rate, against
that of an equal share of every type, is as high as can be. Jobs of one kind (model, batch, GPUs) are
the same to this LP, so they are one variable; `job_by_job` solves the LP Gavel writes instead. The
optimum is the same. Realising fractions by taking turns is left to the rounds, as in Gavel.
"""

from __future__ import annotations

import csv
import gzip
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_matrix

FILE = "gavel_throughputs_flat.csv.gz"
TYPES = ("v100", "p100", "k80")
# Gavel's trace generator: how many jobs ask for 1, 2, 4 and 8 GPUs.
SIZES = ((1, 0.70), (2, 0.10), (4, 0.15), (8, 0.05))

Kind = tuple[str, int]
"""(job type, GPUs)."""


@dataclass(frozen=True)
class Rates:
    """Steps per second alone and in pairs; a pair's are those of its first and second job."""

    alone: dict[tuple[str, Kind], float]
    pairs: dict[tuple[str, Kind, Kind], tuple[float, float]]


def read_rates(data: Path) -> Rates:
    alone: dict[tuple[str, Kind], float] = {}
    pairs: dict[tuple[str, Kind, Kind], tuple[float, float]] = {}
    with gzip.open(data / FILE, "rt") as lines:
        for row in csv.DictReader(lines):
            if row["worker"] not in TYPES:
                continue
            one = (row["job_a"], int(row["gpus_a"]))
            if not row["job_b"]:
                alone[row["worker"], one] = float(row["steps_per_s_a"])
            elif row["gpus_a"] == row["gpus_b"]:
                both = (float(row["steps_per_s_a"]), float(row["steps_per_s_b"]))
                if min(both) > 0:
                    pairs[row["worker"], one, (row["job_b"], int(row["gpus_b"]))] = both
    return Rates(alone, pairs)


def draw_jobs(rates: Rates, jobs: int, seed: int, *, single: bool) -> list[Kind]:
    """Draw jobs of all models alike; `single` gives every one a GPU, else sizes are Gavel's."""
    rng = np.random.default_rng(seed)
    by_size = {
        size: sorted({kind for _, kind in rates.alone if kind[1] == size and _runs(rates, kind)})
        for size, _ in SIZES
    }
    sizes = [1] * jobs if single else rng.choice([s for s, _ in SIZES], jobs, p=[p for _, p in SIZES])
    return [by_size[int(size)][int(rng.integers(len(by_size[int(size)])))] for size in sizes]


def _runs(rates: Rates, kind: Kind) -> bool:
    return all(rates.alone.get((name, kind), 0.0) > 0 for name in TYPES)


@dataclass
class TimeShares:
    """The LP: one column per (group of like jobs or pair of groups, GPU type), in job-time."""

    rates: Rates
    groups: Sequence[tuple[Kind, int]]
    gpus: tuple[int, ...]
    pairs: bool
    rate: coo_matrix = field(init=False)
    used: coo_matrix = field(init=False)
    room: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        rate: list[tuple[int, int, float]] = []
        used: list[tuple[int, int, float]] = []
        groups = len(self.groups)
        column = 0
        jobs = sum(count for _, count in self.groups)
        for w, name in enumerate(TYPES):
            for g, (kind, count) in enumerate(self.groups):
                fair = self._fair(kind, jobs)
                rate.append((g, column, self.rates.alone[name, kind] / count / fair))
                used += [(g, column, 1.0), (groups + w, column, float(kind[1]))]
                column += 1
                for h in range(g if self.pairs else groups, groups):
                    other, others = self.groups[h]
                    both = self.rates.pairs.get((name, kind, other))
                    if both is None or (g == h and count < 2):
                        continue
                    rate.append((g, column, both[0] / count / fair))
                    rate.append((h, column, both[1] / others / self._fair(other, jobs)))
                    used += [(g, column, 1.0), (h, column, 1.0), (groups + w, column, float(kind[1]))]
                    column += 1
        self.rate = _sparse(rate, (groups, column))
        self.used = _sparse(used, (groups + len(TYPES), column))
        self.room = np.array([*(float(count) for _, count in self.groups), *map(float, self.gpus)])

    def bound(self) -> float:
        """Bound the worst rate by the dual of its LP: prices of time and room that no shares beat.

        At prices y ≥ 0 of the rows, with Σ of the prices of the rates 1, any shares that raise all to a
        level pay level ≤ room · y; what shares would gain at y beyond their price (rounding) is added.
        """
        groups = self.rate.shape[0]
        _, _, _, duals = self._highest(np.full(groups, -1.0))
        of_room, of_rate = duals[: len(self.room)], duals[len(self.room) :]
        of_room, of_rate = of_room / of_rate.sum(), of_rate / of_rate.sum()
        gains = np.maximum(self.rate.T @ of_rate - self.used.T @ of_room, 0.0)
        # A column takes a job's time, so all columns together are no more than there are jobs.
        jobs = float(self.room[:groups].sum())
        return float(self.room @ of_room + gains.max(initial=0.0) * jobs)

    def _fair(self, kind: Kind, jobs: int) -> float:
        """Return the rate of an equal share: its part of every type's time, at most all of its own."""
        shares = np.array([gpus / jobs / kind[1] for gpus in self.gpus])
        shares /= max(1.0, shares.sum())
        return float(sum(s * self.rates.alone[name, kind] for s, name in zip(shares, TYPES, strict=True)))

    def max_min(self, *, rounds: int | None = None) -> NDArray[np.float64]:
        """Raise the worst group, fix those that cannot rise, raise the rest; then the sum.

        Gives each group's rate against its equal share. With `rounds` the sum comes after so many
        levels.
        """
        groups = self.rate.shape[0]
        fixed = np.full(groups, -1.0)
        done = 0
        while (fixed < 0).any() and (rounds is None or done < rounds):
            level, tight, _, _ = self._highest(fixed)
            fixed[tight & (fixed < 0)] = level
            done += 1
        floors = np.where(fixed >= 0, fixed, fixed.max()) * (1 - 1e-9)
        counts = np.array([count for _, count in self.groups], dtype=float)
        found = linprog(
            -(self.rate.T @ counts),
            A_ub=_stack(self.used, -self.rate),
            b_ub=np.concatenate((self.room, -floors)),
            method="highs",
        )
        assert found.status == 0, found.message
        return np.asarray(self.rate @ found.x)

    def _highest(
        self, fixed: NDArray[np.float64]
    ) -> tuple[float, NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]]:
        """Find the highest level of the groups not fixed, those that hold it down, shares and prices."""
        groups, columns = self.rate.shape
        level = coo_matrix(np.where(fixed < 0, 1.0, 0.0)[:, None])
        cost = np.zeros(columns + 1)
        cost[-1] = -1.0
        none = coo_matrix((self.used.shape[0], 1))
        found = linprog(
            cost,
            A_ub=_stack(_beside(self.used, none), _beside(-self.rate, level)),
            b_ub=np.concatenate((self.room, -np.maximum(fixed, 0.0) * (1 - 1e-9))),
            method="highs",
        )
        assert found.status == 0, found.message
        duals = np.abs(found.ineqlin.marginals[-groups:])
        tight = duals > 1e-9 * max(1.0, float(duals.max()))
        return float(found.x[-1]), tight, found.x[:-1], np.abs(found.ineqlin.marginals)


def _sparse(entries: list[tuple[int, int, float]], shape: tuple[int, int]) -> coo_matrix:
    rows, columns, values = zip(*entries, strict=True)
    return coo_matrix((values, (rows, columns)), shape=shape).tocsr()


def _stack(*parts: object) -> object:
    from scipy.sparse import vstack

    return vstack(parts, format="csr")


def _beside(*parts: object) -> object:
    from scipy.sparse import hstack

    return hstack(parts, format="csr")


@dataclass(frozen=True)
class Measured:
    """One solve: seconds from the drawn jobs to the rates, the worst and the mean rate.

    `bound`: what the worst rate can be at most, by the dual of its LP (not in the seconds).
    """

    seconds: float
    worst: float
    mean: float
    bound: float


def solve_gavel(
    rates: Rates,
    size: int,
    seed: int,
    *,
    pairs: bool,
    rounds: int | None,
    single: bool,
    job_by_job: bool = False,
) -> Measured:
    """Draw so many jobs for as many GPUs in equal thirds, and solve."""
    jobs = draw_jobs(rates, size, seed, single=single)
    begun = time.perf_counter()
    groups = [(job, 1) for job in jobs] if job_by_job else sorted(Counter(jobs).items())
    third = size // len(TYPES)
    gpus = (size - third * (len(TYPES) - 1), *([third] * (len(TYPES) - 1)))
    shares = TimeShares(rates, groups, gpus, pairs)
    found = shares.max_min(rounds=rounds)
    seconds = time.perf_counter() - begun
    counts = np.array([count for _, count in groups])
    mean = float((found * counts).sum() / counts.sum())
    return Measured(seconds, float(found.min()), mean, shares.bound())
