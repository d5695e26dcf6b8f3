"""The examples of sharing: shipped measurements in which it pays, and what one engine costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pricing_cases import fits_with

from libra_plan.models.clusters import uniform_cluster
from libra_plan.models.fit import fit_profile
from libra_plan.models.memory.states import adapter_mib
from libra_plan.models.pricing.switching import link_gib_per_s, sync_s
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.pricing import price_workload
from libra_plan.planner.verify import violations_of
from libra_plan.profiles.catalog import load_folder, shipped_folder

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="run against an installed package")
FITS = {}


def fit(loaded):
    if loaded.file.id not in FITS:
        FITS[loaded.file.id] = fit_profile(loaded.file, loaded.points)
    return FITS[loaded.file.id]


def priced(name):
    folder = load_folder(EXAMPLES / name, library=[shipped_folder()])
    cluster = uniform_cluster(4, "h200_sxm", 143_155.9)
    nodes = tuple(replace(node, cpu_cores=96.0, host_memory_mib=2**20) for node in cluster.nodes)
    return folder, price_workload(folder, replace(cluster, nodes=nodes), fits=fits_with(folder, fit))


def check_pays(problem, least):
    params = SolveParams(deterministic=True)
    jointly, apart = (
        solve_problem(each, params).require_plan() for each in (problem, replace(problem, sharing=()))
    )
    assert violations_of(problem, jointly) == []
    assert len(jointly.joint) == 1
    assert not jointly.queued
    assert jointly.certificate.objective > least * apart.certificate.objective


def test_taking_turns_pays():
    """Two tasks that keep training and rollout apart gain half of their throughput on the same GPUs."""
    check_pays(priced("turns")[1], 1.5)


def test_only_adapters_are_handed_over():
    """The base model stays: new weights are those of the adapter, over the measured link."""
    folder, problem = priced("turns")
    profile = folder.profiles["h200-qwen2.5-7b-decode"]
    link = link_gib_per_s(problem.cluster, profile, True)
    whole, adapter = (sync_s(problem.cluster, [profile], None, rank) for rank in (None, 16))
    assert adapter == pytest.approx(adapter_mib(profile.file.model, 16) / 1024 / link)
    assert adapter < whole / 100
