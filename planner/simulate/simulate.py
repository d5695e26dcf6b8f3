"""The public function that compares allocation policies in simulated worlds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.errors import writing
from libra_plan.planner.simulate.figures import Figures, FigureSummary, PairedRatio, paired, summaries
from libra_plan.planner.simulate.policies import POLICIES, make_policy
from libra_plan.planner.simulate.record import RunRecord, chrome_trace, json_lines
from libra_plan.planner.simulate.sweep import Case, sweep
from libra_plan.planner.simulate.world import World, find_worlds

__all__ = ["DEFAULT_POLICIES", "Simulation", "simulate"]

DEFAULT_POLICIES = ("equal", "best-static", "ours", "clairvoyant")


@dataclass(frozen=True)
class Simulation:
    """What simulated runs came to.

    Attributes
    ----------
    runs
        The figures of every run, in the order of worlds, seeds and policies.
    summaries
        Every figure of every world and policy over the seeds, with its change against `over`.
    ratios
        Weighted throughput against that of `over`, paired by seed.
    over
        The policy that others are compared with.
    asked
        How many runs were asked for: more than `runs` has when Ctrl-C ended the simulation early.
    records
        What the runs of the first seed left behind, where it was asked for.
    look_s
        Seconds between two looks, by world.

    Examples
    --------
    >>> import libra_plan as lp
    >>> found = lp.simulate("drift-search-48", ["equal", "best-static"], hours=0.2)
    >>> sorted({each.policy for each in found.summaries})
    ['best-static', 'equal']
    """

    runs: tuple[Figures, ...]
    summaries: tuple[FigureSummary, ...]
    ratios: tuple[PairedRatio, ...]
    over: str
    asked: int
    records: tuple[RunRecord, ...]
    look_s: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return runs, ratios and summaries as plain data."""
        data = {"runs": self.runs, "ratios": self.ratios, "summaries": self.summaries}
        return {name: msgspec.to_builtins(rows) for name, rows in data.items()}


def simulate(
    worlds: str | Path | World | Sequence[str | Path | World],
    policies: str | Sequence[str] = DEFAULT_POLICIES,
    *,
    seeds: int | Sequence[int] = 1,
    over: str = "best-static",
    hours: float | None = None,
    jobs: int = 1,
    backend: str = "loky",
    jsonl: Path | None = None,
    chrome: Path | None = None,
    keep_records: bool = False,
    progress: Callable[[float], None] | None = None,
) -> Simulation:
    """Simulate worlds under allocation policies, seed by seed, and compare what gets done.

    Every policy meets the same work under a seed. The same arguments give the same figures on every
    machine, apart from the seconds that decisions took.

    Parameters
    ----------
    worlds
        World files, ids of shipped worlds, or worlds themselves; `all` stands for the shipped ones.
    policies
        Names of policies, a list or separated by commas; `all` stands for every one.
    seeds
        How many seeds, from 0 on, or which.
    over
        The policy that others are compared with.
    hours
        Simulate so many hours of each world, in place of its own.
    jobs
        How many runs are made at a time.
    backend
        What spreads them: joblib's `loky`, `dask` or `ray`.
    jsonl, chrome
        Folders for a trace of every run: JSON lines, and Chrome's trace format (Perfetto reads it).
    keep_records
        Keep what the runs of the first seed leave behind, for pictures.
    progress
        Told the share that is done, from 0 to 1.

    Returns
    -------
    Simulation
        Figures of the runs, sums over seeds, and ratios. After Ctrl-C: of the runs that had ended.

    Raises
    ------
    InputError
        A world or a policy is unknown, a package is missing, or a folder cannot be written to.
    WorkloadError
        A world file is wrong.

    Examples
    --------
    >>> import libra_plan as lp
    >>> found = lp.simulate("drift-search-48", ["equal", "best-static"], hours=0.2)
    >>> [run.policy for run in found.runs]
    ['equal', 'best-static']
    """
    names = [name.strip() for name in policies.split(",")] if isinstance(policies, str) else list(policies)
    names = list(POLICIES) if names == ["all"] else names
    for name in (*names, over):
        make_policy(name)  # refuses a wrong name before anything runs
    for folder in (jsonl, chrome):
        if folder is not None:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
    given = [worlds] if isinstance(worlds, (str, Path, World)) else worlds
    drawn = range(seeds) if isinstance(seeds, int) else seeds
    traced = jsonl is not None or chrome is not None
    cases = [
        Case(world, name, seed, keep_stages=traced or (keep_records and seed == drawn[0]))
        for world in find_worlds(given, hours)
        for seed in drawn
        for name in names
    ]
    runs: list[Figures] = []
    records: list[RunRecord] = []
    try:
        for figures, record in sweep(cases, jobs, backend, progress):
            runs.append(figures)
            _write_traces(record, jsonl, chrome)
            if keep_records and record.seed == drawn[0]:
                records.append(record)
    except KeyboardInterrupt:
        pass  # whoever reads `asked` sees that runs are missing
    others = [name for name in names if name != over]
    return Simulation(
        tuple(runs),
        tuple(summaries(runs, over)),
        tuple(ratio for name in others for ratio in paired(runs, name, over)),
        over,
        len(cases),
        tuple(records),
        {case.world.id: case.world.look_s for case in cases},
    )


def _write_traces(record: RunRecord, jsonl: Path | None, chrome: Path | None) -> None:
    name = f"{record.world}-{record.policy}-{record.seed}"
    if jsonl is not None:
        with writing(jsonl):
            (jsonl / f"{name}.jsonl").write_bytes(b"\n".join(json_lines(record)) + b"\n")
    if chrome is not None:
        with writing(chrome):
            (chrome / f"{name}.json").write_bytes(chrome_trace(record))
