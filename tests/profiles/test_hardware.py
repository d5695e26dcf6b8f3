"""Constants of GPU classes, and floors that no measurement can go below."""

import msgspec
import pytest

from libra_plan.profiles.catalog import load_folder, shipped_folder
from libra_plan.profiles.hardware import (
    bytes_per_weight,
    class_of,
    gpu_class,
    gpu_limits,
    implausible_memory,
    known_classes,
)
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "h200_sxm"),
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA GeForce RTX 4090", "geforce_rtx_4090"),
        ("", "gpu"),
    ],
)
def test_device_names_become_classes(name: str, expected: str) -> None:
    """The class must match the cluster's; form factors differ in speed and must not be one class."""
    assert class_of(name) == expected


@pytest.mark.parametrize("name", known_classes())
def test_every_file_of_a_class_is_read_and_names_itself(name):
    """A file under another class's name would price that class with these numbers."""
    constants = gpu_class(name)
    assert constants.gpu_class == name
    assert constants.driver_names
    assert all(class_of(each) == name for each in constants.driver_names)
    stated = (constants.limits, constants.node, constants.links, constants.engine, constants.runs)
    assert all(section.source for section in stated if section is not None)


def test_what_a_class_does_not_state_was_measured_on_h200():
    """Links of an unknown class are assumed to be as good as measured ones; limits are not."""
    measured, unknown = gpu_class("h200_sxm"), gpu_class("mi300x")
    assert (unknown.links, unknown.engine, unknown.runs) == (measured.links, measured.engine, measured.runs)
    assert unknown.limits is None
    assert gpu_limits("h100_sxm").memory_mib == 81_559.0


@pytest.mark.parametrize(
    ("memory_mib", "wrong"), [(143_771, False), (141.0, True), (71_000, True), (160_000, True)]
)
def test_memory_of_a_known_class_is_judged(memory_mib, wrong):
    """GB in place of MiB would plan on a card that does not exist."""
    assert (implausible_memory("h200_sxm", memory_mib) is not None) == wrong
    assert implausible_memory("mi300x", memory_mib) is None
