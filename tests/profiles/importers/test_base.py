"""What formats have in common."""

import pytest

from libra_plan.errors import InputError
from libra_plan.profiles.importers.base import BadRow, RejectedRow, draft_of, gpu_memory_mib, usable
from libra_plan.profiles.importers.facts import ImportFacts
from libra_plan.profiles.importers.records import SourceRecord
from libra_plan.profiles.model_shapes import model_shape
from libra_plan.profiles.schema import Method

METHOD = Method(tokens_counted="input", throughput_basis="total")


def test_a_bad_record_is_listed_and_the_others_are_read():
    """One broken line must not cost the whole log."""

    def read(record):
        if record.fields["x"] == 2:
            raise BadRow("two")
        return record.fields["x"]

    rows, rejected = usable([SourceRecord(f"a:{x}", {"x": x}) for x in (1, 2, 3)], read)
    assert rows == [1, 3]
    assert rejected == [RejectedRow("a:2", "two")]


def test_a_framework_that_is_stated_wins_over_the_format_s():
    """A fork writes the same files."""
    facts = {"gpu_class": "h200_sxm", "model": model_shape("qwen2.5-7b"), "precision": "bf16"}
    own = draft_of(ImportFacts(**facts), "-score", "score", [], METHOD, framework="vllm")
    assert (own.id, own.software.framework) == ("h200_sxm-qwen2.5-7b-vllm-score", "vllm")
    forked = draft_of(ImportFacts(framework="fork", **facts), "-score", "score", [], METHOD, framework="vllm")
    assert (forked.id, forked.software.framework) == ("h200_sxm-qwen2.5-7b-fork-score", "fork")


def test_recomputation_is_of_training_only():
    """A forward pass keeps nothing to recompute."""
    facts = ImportFacts(gpu_class="h", model=model_shape("qwen2.5-7b"), recompute="full", framework="x")
    assert draft_of(facts, "", "train", [], METHOD).software.recompute == "full"
    assert draft_of(facts, "", "score", [], METHOD).software.recompute is None


def test_memory_is_what_was_stated_or_what_the_class_has():
    """An unknown class must state it; a known one must not contradict itself."""
    assert gpu_memory_mib(ImportFacts(gpu_memory_mib=143_771.0), "h200_sxm") == 143_771.0
    assert gpu_memory_mib(ImportFacts(), "h100_sxm") == 81_559.0
    assert gpu_memory_mib(ImportFacts(), "mi300x") is None
    with pytest.raises(InputError, match="MiB, not GB"):
        gpu_memory_mib(ImportFacts(gpu_memory_mib=141.0), "h200_sxm")
