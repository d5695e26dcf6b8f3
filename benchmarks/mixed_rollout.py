"""Print how long it takes to mix rollout layouts, and what the mix gains.

    python benchmarks/mixed_rollout.py [--gpus 128] [--trajectories 512]

Decode steps are those of the shipped 7B profile on one H200; larger tensor-parallel sizes are
assumed to be faster by the published medians per doubling, so the gains are indications.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from libra_plan.models.fit import fit_profile
from libra_plan.models.lengths import LengthSample, sample_lengths
from libra_plan.models.parallelism import Layout
from libra_plan.models.rollout.admission import Admission
from libra_plan.models.rollout.makespan import pair_lengths
from libra_plan.models.rollout.mixed import ReplicaKind, mixed_rollout
from libra_plan.profiles.catalog import load_profile, shipped_folder
from libra_plan.profiles.schema import LogNormal

REPEATS = 5
SLOTS = {1: (64, 260_000.0), 2: (128, 900_000.0), 4: (256, 2_000_000.0), 8: (256, 4_000_000.0)}
"""Sequences and KV tokens of a replica of a 7B model on cards of 140 GiB, by tensor-parallel size."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gpus", type=int, default=128)
    parser.add_argument("--trajectories", type=int, default=512)
    asked = parser.parse_args()
    profile = load_profile(shipped_folder() / "h200-qwen2.5-7b-decode")
    fitted = fit_profile(profile.file, profile.points)
    kinds = [
        ReplicaKind(
            Layout(tp=size),
            fitted.decode_coefficients(Layout(tp=size), allow_prior=True),
            Admission(*limits),
        )
        for size, limits in SLOTS.items()
    ]
    print(f"{asked.gpus} GPUs, {asked.trajectories} trajectories; median of {REPEATS} runs")
    for sigma in (0.3, 0.6, 1.0, 1.3):
        law = LogNormal(median_tokens=2048, sigma=sigma, max_tokens=31_744)
        responses = sample_lengths(law, asked.trajectories)
        prompts = LengthSample(np.full(asked.trajectories, 1024))
        work = pair_lengths(prompts, responses, np.random.default_rng(0))
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            mixed = mixed_rollout(work, kinds, asked.gpus)
            seconds.append(time.perf_counter() - start)
        counts = {
            str(kind.layout): sum(each.layout == kind.layout for each in mixed.replicas) for kind in kinds
        }
        print(
            f"sigma {sigma:3}: {statistics.median(seconds):6.3f} s to search; step "
            f"{mixed.makespan_s.value:7.1f} s, best single layout {mixed.uniform} "
            f"{mixed.uniform_s or 0:7.1f} s; {counts}"
        )


if __name__ == "__main__":
    main()
