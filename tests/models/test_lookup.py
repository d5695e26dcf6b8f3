"""Which profile answers a question, and when none may."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from libra_plan.errors import RefusedError
from libra_plan.models.lookup import alike, choose_profile, in_set, prior_donors
from libra_plan.models.parallelism import Layout
from libra_plan.models.query import Query
from libra_plan.models.questions import CostQuestion
from libra_plan.profiles.catalog import load_folder, load_profile, shipped_folder

BASE = load_profile(shipped_folder() / "h200-qwen2.5-0.5b-decode")


def _profile(name, *, gpu_class="h200_sxm", model="qwen2.5-0.5b", phase="decode", **software):
    file = BASE.file
    changed = msgspec.structs.replace(
        file,
        id=name,
        phase=phase,
        model=msgspec.structs.replace(file.model, id=model),
        hardware=msgspec.structs.replace(file.hardware, gpu_class=gpu_class),
        software=msgspec.structs.replace(file.software, **software),
    )
    return dataclasses.replace(BASE, file=changed)


def _question(**stated):
    blank = dict.fromkeys(("precision", "recompute", "mode", "framework", "gpu_class", "profile"))
    query = Query(4, 1024, layout=Layout(stated.pop("tp", 1)))
    return CostQuestion(2, "decode", stated.pop("model", "qwen2.5-0.5b"), query=query, **(blank | stated))


def _of(*profiles):
    return {profile.file.id: profile for profile in profiles}


def test_what_is_stated_must_be_so():
    """A question about one precision may not be answered by another."""
    known = _of(_profile("a", precision="bf16"), _profile("b", precision="fp8"))
    assert choose_profile(known, _question(precision="fp8")).profile.file.id == "b"
    with pytest.raises(RefusedError, match="a: bf16"):
        choose_profile(known, _question(precision="int4"))


def test_saying_nothing_prefers_what_says_nothing():
    """The plain profile answers a plain question, not the special one."""
    known = _of(_profile("a", mode="ddp"), _profile("b", mode=None))
    assert choose_profile(known, _question(mode=None)).profile.file.id == "b"
    assert choose_profile(known, _question(mode="ddp")).profile.file.id == "a"


def test_what_differs_in_a_column_is_ambiguous():
    """Two modes differ by a factor of two: guessing one would be wrong half of the time."""
    known = _of(_profile("a", mode="eager"), _profile("b", mode="cudagraph"))
    with pytest.raises(RefusedError) as caught:
        choose_profile(known, _question())
    assert "fill the column mode" in caught.value.message
    assert "a: bf16, eager" in caught.value.message


@pytest.mark.parametrize("differs", [{"gpu_class": "b200"}, {"framework": "vllm"}, {"zero_stage": 3}])
def test_other_hardware_or_stack_is_ambiguous(differs):
    """A folder of several clusters must not answer with the wrong one's times."""
    with pytest.raises(RefusedError, match="could answer"):
        choose_profile(_of(_profile("a"), _profile("b", **differs)), _question())


def test_the_advice_names_the_columns_that_tell_apart():
    """To fill a column that leaves two of three profiles is no way out."""
    classes = _of(_profile("a"), _profile("b", gpu_class="b200"))
    with pytest.raises(RefusedError, match=r"fill the column gpu_class \(h200_sxm, b200\)"):
        choose_profile(classes, _question())
    three = _of(
        _profile("a", precision="bf16"),
        _profile("b", precision="fp8"),
        _profile("c", precision="fp8", gpu_class="b200"),
    )
    with pytest.raises(
        RefusedError, match=r"column precision \(bf16, fp8\) and gpu_class \(h200_sxm, b200\)"
    ):
        choose_profile(three, _question())
    with pytest.raises(RefusedError, match=r"fill the column gpu_class \(h200_sxm, b200\)"):
        choose_profile(three, _question(precision="fp8"))
    with pytest.raises(RefusedError, match=r"fill the column profile \(a, b\)"):
        choose_profile(_of(_profile("a"), _profile("b", zero_stage=3)), _question())


def test_equal_stacks_are_answered_by_the_first_name():
    """Two sets of one stack are both right; which one answered is said."""
    choice = choose_profile(_of(_profile("h200b-x"), _profile("h200-x")), _question())
    assert (choice.profile.file.id, choice.passed_over) == ("h200-x", ("h200b-x",))


def test_a_profile_can_be_named():
    """The column `profile` settles what nothing else can."""
    known = _of(_profile("a"), _profile("b", mode="eager"))
    assert choose_profile(known, _question(profile="b")).profile.file.id == "b"
    with pytest.raises(RefusedError, match="did you mean `a`"):
        choose_profile(known, _question(profile="aa"))


def test_names_of_models_match_as_people_write_them():
    """`Qwen/Qwen2.5-0.5B-Instruct` is the model that was measured."""
    assert (
        choose_profile(_of(_profile("a")), _question(model="Qwen/Qwen2.5-0.5B-Instruct")).profile.file.id
        == "a"
    )
    assert choose_profile(_of(_profile("a")), _question(model="qwen2.5-72b")) is None


def test_a_set_is_a_whole_first_part():
    """`h200` must not take in `h200b`, whose stack is another."""
    assert in_set("h200-x", "h200")
    assert in_set("h200-x", "h200-")
    assert not in_set("h200b-x", "h200")
    assert in_set("anything", None)


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
