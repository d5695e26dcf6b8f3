"""Profiles and clusters: what may be left out, and what may not."""

import msgspec
import pytest
from profile_files import profile_data

from libra_plan.profiles.schema import ClusterFile, NodeSpec, Point, ProfileFile


def test_what_a_profile_does_not_say_is_unknown_and_not_zero():
    """A missing link or power limit must not price as 0."""
    profile = msgspec.convert(profile_data(), ProfileFile)
    hardware = profile.hardware
    assert (hardware.intra_node_gib_per_s, hardware.power_limit_w, hardware.gpus_per_node) == (
        None,
        None,
        None,
    )
    assert (profile.software.lora_rank, profile.software.zero_stage) == (None, 0)


@pytest.mark.parametrize("name", ["batch_sequences", "tp", "repeats", "time_s", "peak_allocated_mib"])
def test_a_point_holds_no_zero(name):
    """A size or a time of 0 would divide."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"batch_sequences": 1, name: 0}, Point)


def test_a_digest_is_64_lower_case_digits():
    """A shortened one would never match, and look as if the points had changed."""
    data = profile_data()
    data["provenance"]["points_sha256"] = data["provenance"]["points_sha256"][:63]
    with pytest.raises(msgspec.ValidationError, match="points_sha256"):
        msgspec.convert(data, ProfileFile)


def test_a_node_is_ready_unless_it_says_otherwise():
    """Most nodes are."""
    node = NodeSpec(id="a", gpu_class="h", gpu_count=8)
    assert (node.state, node.excluded, node.held_by) == ("ready", False, None)
    assert (node.port_first, node.port_last) == (24000, 24999)


@pytest.mark.parametrize("prices", [{"h": -1.0}, {"h": "2"}])
def test_prices_are_numbers_from_zero(prices):
    """A negative price would pay for GPUs."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(
            {"schema_version": 1, "nodes": [], "price_per_gpu_hour": prices}, ClusterFile, strict=True
        )
