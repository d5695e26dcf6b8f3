"""Sia's choice of one configuration per job, on its measured step times, by our search with LP prices.

The problem is Sia's: at most one (GPU type, nodes, GPUs) per job, room per type, least
Σ goodput^p + λ · (jobs left out) with p = −0.5 and λ = 1.1, goodput relative to the job's smallest,
and times r = (T − N·S) / (T + S) for every configuration but the one the job is in. Configurations
are those of its 64-GPU cluster (powers of two in a node, then whole nodes) as far as they were
measured; nothing is extrapolated. The measured files have no gradient noise scales, ages, or
restarts of jobs: those are drawn (seeded), so objectives are not the peers' figures, only of their kind.
"""

from __future__ import annotations

import csv
import gzip
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from libra_plan.planner.optimize.lp_master import Master
from libra_plan.planner.optimize.restricted_master import Effort, select

Floats = NDArray[np.float64]

PROFILES = "sia_step_time_profiles.csv.gz"
WORKLOADS = "sia_workloads.csv.gz"
# Sia's cluster of 64 GPUs: type, GPUs per node, nodes.
TYPES = (("aws", 4, 6), ("rtx", 8, 3), ("dgx-ext", 8, 2))
POWER, LEFT_OUT = -0.5, 1.1
RESTARTS_S = (25.0, 30.0, 45.0, 120.0, 250.0)  # measured for its models; which is whose is drawn
GAP = 5e-6  # relative, of the value that is maximised; a plan this near to the bound is kept
LIMIT_S = 1.5  # of a re-plan; the first plan may take FIRST_S
FIRST_S = 20.0

Config = tuple[int, int, int]
"""(number of the type, nodes, GPUs)."""


def configs(scale: int) -> list[Config]:
    """List a cluster's configurations; `scale` times the 64-GPU cluster."""
    found = []
    for number, (_, per_node, nodes) in enumerate(TYPES):
        found += [(number, 1, 2**k) for k in range(per_node.bit_length())]
        found += [(number, n, n * per_node) for n in range(2, nodes * scale + 1)]
    return found


@dataclass(frozen=True)
class Steps:
    """Best measured (samples per step, seconds) choices of every model in every configuration."""

    known: dict[tuple[str, Config], list[tuple[float, float]]]


def read_steps(stick: Path) -> Steps:
    numbers = {name: number for number, (name, _, _) in enumerate(TYPES)}
    known: dict[tuple[str, Config], list[tuple[float, float]]] = defaultdict(list)
    with gzip.open(stick / PROFILES, "rt") as lines:
        for row in csv.DictReader(lines):
            if row["gpu"] not in numbers:
                continue
            nodes, gpus = int(row["num_nodes"]), int(row["num_replicas"])
            per_node = TYPES[numbers[row["gpu"]]][1]
            if nodes > 1 and gpus != nodes * per_node:
                continue  # Sia gives whole nodes when it gives several
            key = (row["model"], (numbers[row["gpu"]], nodes, gpus))
            known[key].append((gpus * float(row["local_bsz"]), float(row["step_time"])))
    return Steps(known)


def read_models(stick: Path) -> list[tuple[str, float]]:
    """List (model, batch size) of every job of the traces."""
    with gzip.open(stick / WORKLOADS, "rt") as lines:
        return [(row["application"], float(row["batch_size"])) for row in csv.DictReader(lines)]


@dataclass(frozen=True)
class Jobs:
    """Relative goodput, shape (jobs, configurations), NaN where not measured; ages and restarts."""

    goodput: Floats
    age_s: Floats
    restarts: Floats
    restart_s: Floats

    @property
    def kept(self) -> Floats:
        """Return what a change leaves of a job's goodput."""
        return (self.age_s - self.restarts * self.restart_s) / (self.age_s + self.restart_s)


def draw_jobs(
    steps: Steps, models: list[tuple[str, float]], columns: list[Config], jobs: int, seed: int
) -> Jobs:
    """Draw jobs from the traces; the noise scale of each is around its own batch size."""
    rng = np.random.default_rng(seed)
    goodput = np.full((jobs, len(columns)), np.nan)
    restart_s = np.empty(jobs)
    of_model = {name: float(rng.choice(RESTARTS_S)) for name in sorted({name for name, _ in models})}
    for job in range(jobs):
        model, batch = models[int(rng.integers(len(models)))]
        noise = batch * float(np.exp(rng.normal(0.0, 0.7)))
        restart_s[job] = of_model[model]
        for column, config in enumerate(columns):
            measured = steps.known.get((model, config))
            if measured:
                goodput[job, column] = max(
                    samples / seconds * (noise + 1.0) / (noise + samples) for samples, seconds in measured
                )
    goodput /= np.nanmin(goodput, axis=1, keepdims=True)
    restarts = rng.integers(0, 6, jobs).astype(float)
    age_s = restarts * restart_s + rng.uniform(60.0, 7200.0, jobs)
    return Jobs(goodput, age_s, restarts, restart_s)


@dataclass(frozen=True)
class Round:
    """One planning round: what every configuration of every job is worth (NaN: not measured)."""

    values: Floats
    demands: Floats
    room: Floats

    def objective(self, choice: NDArray[np.int64]) -> float:
        """Return Sia's objective (less is better) of a choice; −1 leaves a job out."""
        runs = choice >= 0
        worth = self.values[np.flatnonzero(runs), choice[runs]].sum()
        return LEFT_OUT * len(choice) - float(worth)


def next_round(
    jobs: Jobs, columns: list[Config], scale: int, now: NDArray[np.int64], goodput: Floats
) -> Round:
    factor = np.broadcast_to(jobs.kept[:, None], goodput.shape).copy()
    factor[now < 0] = 1.0  # a job that does not run has nothing to lose
    runs = np.flatnonzero(now >= 0)
    factor[runs, now[runs]] = 1.0
    demands = np.zeros((len(columns), len(TYPES)))
    for column, (kind, _, gpus) in enumerate(columns):
        demands[column, kind] = gpus
    room = np.array([float(per_node * nodes * scale) for _, per_node, nodes in TYPES])
    return Round(LEFT_OUT - (goodput * factor) ** POWER, demands, room)


def solve_ours(
    at: Round,
    now: NDArray[np.int64],
    limit_s: float = LIMIT_S,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[NDArray[np.int64], float]:
    """Choose by LP prices, the running choice first; gives the choice and a bound of the objective.

    What runs stays unless the new choice is better by more than the gap that was asked for.
    """
    job, config = np.nonzero(~np.isnan(at.values))
    first = np.searchsorted(job, np.arange(len(now) + 1))
    column, row = np.nonzero(at.demands[config])
    names = tuple(name for name, _, _ in TYPES)
    amount = at.demands[config][column, row]
    master = Master(names, at.room, at.values[job, config], first, row, column, amount)
    running = np.flatnonzero(now[job] == config)
    begun = clock()
    late = lambda: clock() - begun > limit_s  # noqa: E731
    found = select(master, Effort(GAP, limit_s, stopped=late), running if len(running) else None)
    choice = np.full(len(now), -1)
    if found.chosen is not None:
        choice[job[found.chosen]] = config[found.chosen]
    bound = LEFT_OUT * len(now) - found.bound
    before, after = at.objective(now), at.objective(choice)
    return (now, bound) if before - after <= GAP * max(1.0, found.value) else (choice, bound)


def solve_highs(
    at: Round, gap: float = 1e-4, limit_s: float = 60.0, clock: Callable[[], float] = time.perf_counter
) -> tuple[NDArray[np.int64], float]:
    """Choose by HiGHS's MILP; gives the choice and the seconds, model included."""
    begun = clock()
    job, column = np.nonzero(~np.isnan(at.values))
    number = np.arange(len(job))
    once = coo_matrix((np.ones(len(job)), (job, number)), shape=(len(at.values), len(job)))
    room = coo_matrix(at.demands[column].T)
    found = milp(
        -at.values[job, column],
        integrality=np.ones(len(job)),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(once.tocsr(), -np.inf, 1.0),
            LinearConstraint(room.tocsr(), -np.inf, at.room),
        ],
        options={"mip_rel_gap": gap, "time_limit": limit_s},
    )
    assert found.x is not None, found.message
    choice = np.full(len(at.values), -1)
    taken = found.x > 0.5
    choice[job[taken]] = column[taken]
    return choice, clock() - begun


@dataclass(frozen=True)
class Measured:
    """One size: seconds of each re-plan, distance to HiGHS and to the bound, moves."""

    jobs: int
    gpus: int
    first_s: float
    seconds: tuple[float, ...]
    highs_s: float
    against_highs: float
    against_bound: float
    replans_against_bound: float
    moved_unchanged: int
    moved_share: float


def measure_sia(
    stick: Path,
    jobs: int,
    gpus: int,
    *,
    replans: int,
    noise: float,
    seed: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Plan once, again unchanged, and then with noisy goodputs; HiGHS solves the first round too."""
    scale = gpus // 64
    columns = configs(scale)
    drawn = draw_jobs(read_steps(stick), read_models(stick), columns, jobs, seed)
    nothing = np.full(jobs, -1)
    first = next_round(drawn, columns, scale, nothing, drawn.goodput)
    known, highs_s = solve_highs(first, gap=1e-6, clock=clock)
    begun = clock()
    now, bound = solve_ours(first, nothing, FIRST_S, clock)
    first_s = clock() - begun
    value = first.objective(now)
    again, _ = solve_ours(next_round(drawn, columns, scale, now, drawn.goodput), now, clock=clock)
    rng = np.random.default_rng(seed + 1)
    seconds, above, moved = [], [], []
    plan = now
    for _ in range(replans):
        noisy = drawn.goodput * np.exp(rng.normal(0.0, noise, drawn.goodput.shape))
        begun = clock()
        at = next_round(drawn, columns, scale, plan, noisy)
        then, bound_then = solve_ours(at, plan, clock=clock)
        seconds.append(clock() - begun)
        above.append(at.objective(then) / bound_then - 1.0)
        moved.append(float((then != plan).mean()))
        plan = then
    return Measured(
        jobs,
        gpus,
        first_s,
        tuple(seconds),
        highs_s,
        value / first.objective(known) - 1.0,
        value / bound - 1.0,
        max(above, default=0.0),
        int((again != now).sum()),
        float(np.mean(moved)) if moved else 0.0,
    )
