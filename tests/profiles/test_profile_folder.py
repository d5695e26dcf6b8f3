"""What is written as a profile is read as that profile."""

import msgspec
import pytest
import yaml

from libra_plan.profiles.catalog import load_profile, shipped_folder
from libra_plan.profiles.document import parse_document
from libra_plan.profiles.profile_folder import write_folder, yaml_text


def test_a_profile_survives_writing_and_reading(tmp_path):
    """Every shipped kind: struct, points, and the digest that pins them."""
    for name in (
        "h200-qwen2.5-7b-decode",
        "aic-h200-llama-3.1-70b-vllm-fp8",
        "h200c-qwen2.5-7b-train-accumulated",
    ):
        shipped = load_profile(shipped_folder() / name)
        again = load_profile(write_folder(tmp_path, shipped.file, shipped.points))
        assert again.points == shipped.points
        provenance = msgspec.structs.replace(
            again.file.provenance, points_sha256=shipped.file.provenance.points_sha256
        )
        assert msgspec.structs.replace(again.file, provenance=provenance) == shipped.file


@pytest.mark.parametrize(
    "text", ["no", "1e9", "010", "1:30", "~", ".nan", "true", "", "two\nlines", "- a", "9" * 500]
)
def test_a_text_stays_text_for_both_yaml_versions(text):
    """A version called 1e9 must not come back as a number."""

    class Named(msgspec.Struct):
        version: str
        other: str = "x"

    written = yaml_text(Named(text))
    assert parse_document(written, "p.yaml").data == {"version": text, "other": "x"}
    assert yaml.safe_load(written)["other"] == "x"


def test_what_is_unknown_is_left_out():
    """None is said by absence."""

    class Known(msgspec.Struct):
        a: int | None = None
        b: tuple[int, ...] = ()
        c: int = 3

    assert yaml_text(Known(), "# head\n") == "# head\nc: 3\n"
