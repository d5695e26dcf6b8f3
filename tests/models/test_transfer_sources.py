"""Whom a model without points of its own is predicted from."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from libra_plan.models.lookup import alike, prior_donors
from libra_plan.profiles.catalog import load_folder, shipped_folder

SHIPPED = load_folder(shipped_folder(), library=()).profiles


@pytest.mark.parametrize("name", [name for name, each in SHIPPED.items() if each.file.phase == "decode"])
def test_decoding_with_a_mask_says_nothing_of_decoding_without(name):
    """Without one a step takes a twentieth at long contexts, yet the masked profiles stood in for it."""
    donors = prior_donors(SHIPPED, SHIPPED[name].file)
    assert len(donors) == 2
    assert {each.file.software.mode for each in donors} == {SHIPPED[name].file.software.mode}


def test_parts_of_accumulated_steps_and_whole_steps_are_not_mixed():
    """A micro-batch shares its update with others, and peaks beside gradients that they left."""
    for name in ("h200b-qwen2.5-0.5b-train", "h200c-qwen2.5-0.5b-train-accumulated"):
        donors = prior_donors(SHIPPED, SHIPPED[name].file)
        assert [each.file.id.partition("-")[0] for each in donors] == [name.partition("-")[0]] * 2


def test_adapters_and_whole_models_are_not_mixed():
    """A backward pass through frozen weights computes a third less."""
    file = SHIPPED["h200b-qwen2.5-7b-train"].file
    lora = msgspec.structs.replace(file, software=msgspec.structs.replace(file.software, lora_rank=16))
    assert prior_donors(SHIPPED, lora) == []


def test_a_table_takes_one_way_for_all_models():
    """With the mode left open, each model was taken in whichever mode came first."""
    masked = [each for name, each in SHIPPED.items() if name.endswith("b-decode") and "h200b" in name]
    without = [each for name, each in SHIPPED.items() if name.endswith("-gqa")]
    chosen = alike([masked[0], *without[1:], masked[2], without[0]])
    assert {each.file.software.mode for each in chosen} == {"cudagraph-gqa"}
    assert len(chosen) == 3
    assert alike([]) == []


def test_more_points_count_where_only_the_ranks_differ():
    """A few steps on two GPUs are no match for the whole table on one."""
    few, many = SHIPPED["h200-qwen2.5-1.5b-train-ddp"], SHIPPED["h200-qwen2.5-1.5b-train"]
    assert alike([few, many]) == [many]
    renamed = dataclasses.replace(few, file=msgspec.structs.replace(few.file, id="a-ddp"))
    assert alike([many, renamed]) == [many]
