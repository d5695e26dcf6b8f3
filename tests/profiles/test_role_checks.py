from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_files import MODEL, workload_data, write_folder

from libra_plan.errors import WorkloadError
from libra_plan.profiles.catalog import load_folder
from libra_plan.profiles.role_checks import PHASES, legal_tps
from libra_plan.profiles.schema import ModelShape, RoleKind

ROLLOUT, ACTOR, ENV = 0, 1, 2

CASES: dict[str, tuple[int, dict[str, Any], str, str]] = {
    "no profile": (ROLLOUT, {"profiles": []}, "profiles", "names no profile"),
    "mistyped profile": (ROLLOUT, {"profiles": ["dd"]}, "profiles[0]", "no profile `dd`"),
    "wrong phase": (ACTOR, {"profiles": ["s"]}, "profiles[0]", "cannot use a profile of phase score"),
    "cannot generate": (ROLLOUT, {"profiles": ["s"]}, "profiles", "needs a profile that generates"),
    "range": (ACTOR, {"min_gpus": 3, "max_gpus": 2}, "min_gpus", "`min_gpus` is above `max_gpus`"),
    "pinned": (
        ACTOR,
        {"pinned_gpus": ["a:0"], "excluded_gpus": ["a:0"]},
        "excluded_gpus",
        "both pinned and excluded",
    ),
    "pinned twice": (ACTOR, {"pinned_gpus": ["a:0", "a:0"]}, "pinned_gpus", "listed twice"),
    "workers": (ACTOR, {"workers": 2}, "workers", "`workers` is for env roles"),
    "env profile": (ENV, {"profiles": ["s"]}, "profiles", "`profiles` is for GPU roles"),
    "env need": (
        ENV,
        {"host_memory_mib_per_worker": None},
        "",
        "does not state `host_memory_mib_per_worker`",
    ),
    "offload": (ROLLOUT, {"offload": ["parameters"]}, "offload", "cannot offload its parameters"),
    "env offload": (ENV, {"offload": ["optimizer"]}, "offload", "`offload` is for GPU roles"),
    "pp": (ACTOR, {"layouts": [{"pp": 5}]}, "layouts[0].pp", "fewer layers than pipeline stages"),
    "ep": (ACTOR, {"layouts": [{"ep": 2}]}, "layouts[0].ep", "has no experts"),
    "budget": (ACTOR, {"micro_batch_tokens": 1099}, "micro_batch_tokens", "below the longest sample"),
}


def change(tmp_path: Path, role: int, values: dict[str, Any]) -> Path:
    data = workload_data()
    data["tasks"][0]["roles"][role].update(values)
    return write_folder(tmp_path, data)


@pytest.mark.parametrize("case", CASES)
def test_a_role_that_contradicts_itself_names_its_key(tmp_path: Path, case: str) -> None:
    """Each of these would otherwise end as an unexplained `infeasible` or as a wrong plan."""
    role, values, key, words = CASES[case]
    with pytest.raises(WorkloadError) as caught:
        load_folder(change(tmp_path, role, values), library=())
    assert words in caught.value.what
    assert caught.value.where is not None
    assert caught.value.where.line is not None
    assert caught.value.where.key == f"tasks[0].roles[{role}]" + (f".{key}" if key else "")


def test_an_illegal_tp_is_answered_with_the_legal_ones(tmp_path: Path) -> None:
    """A005: 28 heads and TP 8 fail at start; with 4 KV heads 7 and 14 would fail too."""
    with pytest.raises(WorkloadError, match=r"28 heads and 4 KV heads.*got tp 8; allowed: tp 1, 2, 4, 28"):
        load_folder(change(tmp_path, ROLLOUT, {"layouts": [{"tp": 8}]}), library=())


def test_context_parallelism_spreads_the_longest_sample(tmp_path: Path) -> None:
    """A085: budget × sequence parallel degree must reach the longest sample, at plan time."""
    values = {"micro_batch_tokens": 550, "layouts": [{"cp": 2}]}
    assert load_folder(change(tmp_path, ACTOR, values), library=()).workload is not None


def test_a_budget_must_hold_in_every_allowed_layout(tmp_path: Path) -> None:
    """A085: the planner may choose the layout with the least context parallelism."""
    values = {"micro_batch_tokens": 550, "layouts": [{"cp": 2}, {"tp": 2}]}
    with pytest.raises(WorkloadError, match="got 550 tokens; allowed: 1100 or more"):
        load_folder(change(tmp_path, ACTOR, values), library=())


def test_a_mistyped_profile_gets_the_nearest_and_all_known(tmp_path: Path) -> None:
    """Profile ids are long."""
    with pytest.raises(WorkloadError) as caught:
        load_folder(change(tmp_path, ROLLOUT, {"profiles": ["dd"]}), library=())
    assert caught.value.allowed == "d, s, t"
    assert caught.value.way_out == "did you mean `d`?"


def test_every_gpu_role_kind_has_its_phases() -> None:
    """A kind added to the schema must be given its phases."""
    assert set(PHASES) == set(msgspec.inspect.type_info(RoleKind).values) - {"env"}  # type: ignore[attr-defined]


@given(heads=st.integers(1, 128), kv_heads=st.integers(1, 16))
def test_legal_tps_leave_whole_heads_everywhere(heads: int, kv_heads: int) -> None:
    """Each rank holds whole query heads, and KV heads are split or copied evenly."""
    legal = legal_tps(msgspec.convert({**MODEL, "heads": heads, "kv_heads": kv_heads}, ModelShape))
    assert legal[0] == 1
    for tp in range(1, 65):
        evenly = heads % tp == 0 and max(kv_heads, tp) % min(kv_heads, tp) == 0
        assert (tp in legal) == evenly


def test_a_role_runs_one_model(tmp_path: Path) -> None:
    """A decode profile of 7B beside a score profile of 0.5B priced half of a rollout as another model."""
    root = change(tmp_path, ROLLOUT, {"profiles": ["d", "s"]})
    assert load_folder(root, library=()).workload is not None
    path = root / "s" / "profile.yaml"
    larger = path.read_text().replace("hidden: 64", "hidden: 128").replace("params: 450000", "params: 900000")
    path.write_text(larger.replace("id: tiny", "id: large"))
    with pytest.raises(WorkloadError, match=r"different models.*got s of large, beside d of tiny") as caught:
        load_folder(root, library=())
    assert caught.value.where is not None
    assert caught.value.where.key == "tasks[0].roles[0].profiles[1]"
    assert caught.value.where.line is not None
