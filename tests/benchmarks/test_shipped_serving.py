"""The serving profiles that come with the package."""

import importlib.util
import os
from pathlib import Path

import pytest

from libra_plan.profiles.catalog import load_profile, shipped_folder

ROOT = Path(__file__).parents[2]


def load(name):
    """Load a script of benchmarks/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


shipped_serving = load("shipped_serving")
SOURCE = os.environ.get("LIBRA_PLAN_AIC_SOURCE", "")
SHA256 = "00c966ab2a1afa4a1f488739882b59d9b344e45c0ba348c914ac44c4f29d70af"
SHIPPED = sorted(shipped_folder().glob("aic-*/profile.yaml"))


def test_shipped_serving_profiles_name_source_and_licence():
    """Published data travel with where they come from."""
    assert len(SHIPPED) == len(shipped_serving.SELECTIONS) + 1  # 70B on vLLM was measured on two GPU classes
    notice = (shipped_folder() / "AIC-NOTICE.md").read_text(encoding="utf-8")
    assert SHA256 in notice
    for path in SHIPPED:
        profile = load_profile(path.parent)
        provenance = profile.file.provenance
        assert (provenance.kind, provenance.licence, provenance.source_sha256) == (
            "published",
            "Apache-2.0",
            SHA256,
        )
        assert "the source does not say" in profile.file.notes
        assert profile.warnings == ()


@pytest.mark.skipif(not SOURCE, reason="LIBRA_PLAN_AIC_SOURCE does not name AIConfigurator's table")
def test_the_shipped_files_are_the_importers_output(tmp_path):
    """Nobody edits a published measurement by hand."""
    shipped_serving.import_shipped(SOURCE, tmp_path)
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        assert (shipped_folder() / path.relative_to(tmp_path)).read_bytes() == path.read_bytes()
