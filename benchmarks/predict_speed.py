"""Print how long it takes to fit all shipped profiles and to predict a table of questions.

    python benchmarks/predict_speed.py [--rows 100000]

The table mixes what is inside, at and beyond the measured places of the first H200 set, measured places,
more data-parallel ranks and unmeasured layouts; it is answered without and with priors, and once for a
model that was never measured. Processor seconds: the median of three runs, lowest and highest.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from libra_plan.models.fit import FittedProfile, fit_profile
from libra_plan.models.parallelism import Layout
from libra_plan.models.predict import predict
from libra_plan.models.query import Query
from libra_plan.models.questions import CostQuestion
from libra_plan.profiles.catalog import load_folder, shipped_folder
from libra_plan.profiles.schema import Phase

RUNS = 3
PHASES: tuple[Phase, ...] = ("decode", "score", "train")
MEASURED = (4.0, 2048.0)
UNMEASURED_MODEL = "qwen3-8b"


def questions(count: int, models: tuple[str, ...]) -> list[CostQuestion]:
    """Draw questions; one in ten is about a measured place, one in ten about another layout."""
    rng = np.random.default_rng(0)
    rows = []
    for line in range(count):
        phase = PHASES[line % len(PHASES)]
        sizes = (float(2 ** rng.uniform(-0.5, 9)), float(2 ** rng.uniform(7, 17)))
        batch, length = MEASURED if rng.random() < 0.1 else sizes
        dp = 2 if phase == "train" and rng.random() < 0.2 else 1
        query = Query(batch, length, layout=Layout(2 if rng.random() < 0.1 else 1), dp=dp)
        model = models[int(rng.integers(len(models)))]
        rows.append(CostQuestion(line + 2, phase, model, None, None, None, None, None, None, query))
    return rows


def timed(work: Callable[[], object]) -> str:
    """Run it a few times and say what it took."""
    seconds = []
    for _ in range(RUNS):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return f"{statistics.median(seconds):6.2f} s ({min(seconds):.2f} – {max(seconds):.2f})"


def report(rows: int) -> Iterator[str]:
    """Return the lines of the table."""
    profiles = load_folder(shipped_folder(), library=()).profiles
    fits: dict[str, FittedProfile] = {}

    def fit_all() -> None:
        fits.update({name: fit_profile(each.file, each.points) for name, each in profiles.items()})

    yield f"fit all {len(profiles)} shipped profiles          {timed(fit_all)}"
    measured = questions(rows, ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b"))
    for name, asked, allow_prior in (
        ("refusing", measured, False),
        ("priors allowed", measured, True),
        ("never measured", questions(rows, (UNMEASURED_MODEL,)), True),
    ):
        answer = partial(
            predict,
            profiles,
            asked,
            fit=lambda each: fits[each.file.id],
            set_name="h200",
            allow_prior=allow_prior,
        )
        took, said = timed(answer), answer().rows
        origins = Counter(row.origin or "refused" for row in said)
        counts = ", ".join(f"{count} {origin}" for origin, count in origins.most_common())
        yield f"predict {rows} rows, {name:16} {took}; {counts}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Time fits and a table of predictions.")
    parser.add_argument("--rows", type=int, default=100_000)
    for line in report(parser.parse_args().rows):
        print(line)


if __name__ == "__main__":
    main()
