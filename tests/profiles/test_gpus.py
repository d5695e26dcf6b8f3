"""Floors that no measurement can go below."""

import msgspec
import pytest

from libra_plan.profiles.catalog import load_folder, shipped_folder
from libra_plan.profiles.gpus import bytes_per_weight
from libra_plan.profiles.physics import floor_s


@pytest.mark.parametrize(
    ("precision", "width"),
    [("bf16", 2), ("fp8", 1), ("fp8_block", 1), ("int4-awq", 0.5), ("fp32", 4), ("fp32-master/bf16", 2)],
)
def test_the_width_of_a_weight_is_that_of_the_forward_pass(precision, width):
    """Masters in fp32 are not read to make a token."""
    assert bytes_per_weight(precision) == width


def test_nothing_measured_beats_its_floor():
    """Every shipped row, ours and published, is slower than data sheets allow; the best by under 2 times."""
    folder = load_folder(shipped_folder(), library=())
    ratios = []
    for profile in folder.profiles.values():
        for point in profile.points:
            floor = floor_s(point, profile.file)
            assert floor is not None
            if point.time_s is not None:
                ratios.append(point.time_s / floor)
    assert 1.0 <= min(ratios) < 2.0  # a floor far below everything would find nothing


def test_the_floor_of_a_token_falls_with_ranks_and_width():
    """70B in fp8 at tp 2 on H200: 69.5 GB ÷ 2 ÷ 4.8 TB/s = 7.2 ms."""
    profile = load_folder(shipped_folder(), library=()).profiles["aic-h200-llama-3.1-70b-vllm-fp8"]
    point = next(point for point in profile.points if point.tp == 2)
    assert floor_s(point, profile.file) == pytest.approx(7.24e-3, rel=0.01)
    wider = msgspec.structs.replace(
        profile.file, software=msgspec.structs.replace(profile.file.software, precision="bf16")
    )
    assert floor_s(point, wider) == pytest.approx(14.5e-3, rel=0.01)


def test_an_unknown_class_has_no_floor():
    """What we do not know we do not judge."""
    profile = next(iter(load_folder(shipped_folder(), library=()).profiles.values()))
    other = msgspec.structs.replace(
        profile.file, hardware=msgspec.structs.replace(profile.file.hardware, gpu_class="h20_sxm")
    )
    assert floor_s(profile.points[0], other) is None
