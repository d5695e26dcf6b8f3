"""A manifest that is read is the manifest that was written, or it is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import plans
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

import libra_plan
from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.document import (
    manifest_digest,
    manifest_to_json,
    manifest_to_yaml,
    read_manifest,
)

WRITERS = {".json": manifest_to_json, ".yaml": manifest_to_yaml}


def stored(folder, manifest, suffix=".json"):
    path = folder / f"manifest{suffix}"
    path.write_text(WRITERS[suffix](manifest), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize("case", plans.CASES)
def test_written_and_read_are_equal(tmp_path, case, suffix):
    """Launchers may keep either form."""
    manifest = plans.CASES[case]()
    assert read_manifest(stored(tmp_path, manifest, suffix)) == manifest


@given(
    words=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1), min_size=1)
)
def test_any_command_survives_both_forms(tmp_path_factory, words):
    """A073: `no`, `1e9`, `010` and `1:30` are words of a command and must come back as text."""
    folder = tmp_path_factory.mktemp("any")
    task = plans.running("t", [plans.role("train", [["n0:0"]])])
    manifest = plans.manifest_of(
        plans.cluster(1), task, command=[*words, "no", "NaN", "1e9", "010", "1:30", "~", ""]
    )
    for suffix in WRITERS:
        assert read_manifest(stored(folder, manifest, suffix)) == manifest


def test_the_digest_is_over_canonical_json_of_the_rest():
    """Another program must be able to compute it from the file alone."""
    import hashlib

    manifest = plans.single_node()
    document = json.loads(manifest_to_json(manifest))
    stated = document["metadata"].pop("digest")
    assert stated == "sha256:" + hashlib.sha256(rfc8785.dumps(document)).hexdigest()
    assert stated == manifest_digest(manifest)


@pytest.mark.parametrize(
    ("old", "new"),
    [('"graceS": 120.0', '"graceS": 1.0'), ('"port": 24000', '"port": 24007'), ('"n0:0"', '"n0:7"')],
)
def test_tampering_is_named(tmp_path, old, new):
    """An edited manifest is not what was planned and checked."""
    path = stored(tmp_path, plans.single_node())
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(ManifestError, match="changed after it was written") as caught:
        read_manifest(path)
    assert caught.value.where.key == "metadata.digest"


@pytest.mark.parametrize("version", ["libra-plan/v1", "libra-plan/v1alpha2", None])
def test_an_unknown_version_stops(tmp_path, version):
    """A093: an unknown shape once counted as nothing, and a limit was silently off."""
    document = json.loads(manifest_to_json(plans.single_node()))
    document["apiVersion"] = version
    document["spec"] = {"components": {}}
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ManifestError, match=r"unknown apiVersion|apiVersion is missing") as caught:
        read_manifest(path)
    assert caught.value.allowed == "libra-plan/v1alpha1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("[]", "apiVersion is missing"),
        ('{"apiVersion": "libra-plan/v1alpha1", "apiVersion": "x"}', "duplicate key"),
        (
            '{"apiVersion": "libra-plan/v1alpha1", "kind": "PlacementManifest", "extra": 1}',
            "unknown key `extra`",
        ),
        ('{"apiVersion": "libra-plan/v1alpha1", "kind": "PlacementManifest"}', "`metadata` is missing"),
        ('{"rate": NaN}', "not a finite number"),
        ("\x00" * 64, "NUL"),
    ],
)
def test_what_is_no_manifest_is_refused(tmp_path, text, message):
    """A072, A074, A075, A076: empty, doubled, NaN and zeroed files each get their own words."""
    path = tmp_path / "manifest.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ManifestError, match=message):
        read_manifest(path)


def test_a_number_that_is_not_finite_is_never_written():
    """A075: NaN is no JSON; the message says where it came from."""
    task = plans.running("t", [plans.role("train", [["n0:0"]], peak_mib=float("inf"))])
    with pytest.raises(ManifestError, match=r"not finite") as caught:
        plans.manifest_of(plans.cluster(1), task)
    assert caught.value.where.key == "spec.tasks[0].roles[0].peakMemory.value"


def test_text_that_is_no_unicode_is_refused():
    """A lone surrogate could be neither digested nor written."""
    task = plans.running("t", [plans.role("train", [["n0:0"]])])
    with pytest.raises(ManifestError, match="JSON cannot carry"):
        plans.manifest_of(plans.cluster(1), task, command=["\udcff.py"])


def test_accents_survive_an_ascii_locale(tmp_path):
    """A080: containers run with the POSIX locale, and files must not depend on it."""
    folder = tmp_path / "Müller é"
    folder.mkdir()
    task = plans.running("t", [plans.role("train", [["n0:0"]])])
    manifest = plans.manifest_of(plans.cluster(1), task, command=["/daten/Müller/träin.py"])
    path = stored(folder, manifest)
    code = (
        "import sys; from pathlib import Path; from libra_plan.planner.launchers.document import *;"
        "from libra_plan.planner.launchers.store import write_manifest;"
        "m = read_manifest(Path(sys.argv[1])); write_manifest(Path(sys.argv[1]).parent / 'again', m)"
    )
    source = str(Path(libra_plan.__file__).parent.parent)
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONPATH": source,
    }
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment)
    assert read_manifest(folder / "again" / "manifest.json") == manifest
