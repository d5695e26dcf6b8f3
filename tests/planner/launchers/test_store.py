"""Manifests on disk: whole, in order, none lost."""

from __future__ import annotations

import msgspec
import plans
import pytest

from libra_plan.errors import LockedError, ManifestError
from libra_plan.planner.launchers.document import manifest_to_json, read_manifest, seal
from libra_plan.planner.launchers.store import (
    generation_file,
    lock_folder,
    read_current,
    write_manifest,
)


def generation(parent, *gpus):
    task = plans.running("t", [plans.role("train", [[f"n0:{index}"] for index in gpus])])
    return plans.manifest_of(plans.cluster(8), task, parent=parent)


def test_each_write_keeps_the_generation_before(tmp_path):
    """One must be able to go back, and to see what was running."""
    first = generation(None, 0)
    second = generation(first, 0, 1)
    assert write_manifest(tmp_path, first).manifest is None
    assert write_manifest(tmp_path, second).manifest == first
    assert read_current(tmp_path).manifest == second
    assert read_manifest(generation_file(tmp_path, 1)) == first
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".lock",
        "manifest-g000001.json",
        "manifest.json",
    ]


def test_a_plan_made_from_an_older_manifest_is_refused(tmp_path):
    """Two planners looked at the same time; the second must not overwrite what it never saw."""
    first = generation(None, 0)
    write_manifest(tmp_path, first)
    write_manifest(tmp_path, generation(first, 0, 1))
    with pytest.raises(ManifestError, match="stale"):
        write_manifest(tmp_path, generation(first, 2))
    with pytest.raises(ManifestError, match="stale"):
        write_manifest(tmp_path, generation(None, 3))


def test_writing_the_same_again_changes_nothing(tmp_path):
    """A caller that crashed after the rename may simply repeat itself."""
    first = generation(None, 0)
    write_manifest(tmp_path, first)
    assert write_manifest(tmp_path, first).manifest == first
    assert not generation_file(tmp_path, 1).exists()


def test_an_unsound_manifest_is_never_written(tmp_path):
    """A015: what breaks its own rules must not reach a launcher."""
    manifest = generation(None, 0)
    nodes = tuple(msgspec.structs.replace(node, gpus=()) for node in manifest.spec.nodes)
    broken = seal(msgspec.structs.replace(manifest, spec=msgspec.structs.replace(manifest.spec, nodes=nodes)))
    with pytest.raises(ManifestError, match="gpu-unknown"):
        write_manifest(tmp_path, broken)
    assert read_current(tmp_path).manifest is None


@pytest.mark.parametrize("damage", [b"\x00" * 4096, b"", b'{"apiVersion": "libra'])
def test_a_broken_file_is_moved_aside_and_told(tmp_path, damage):
    """A076: after a crash the state file was all NUL; the kept generation takes over."""
    first = generation(None, 0)
    second = generation(first, 1)
    write_manifest(tmp_path, first)
    write_manifest(tmp_path, second)
    (tmp_path / "manifest.json").write_bytes(damage)
    stored = read_current(tmp_path)
    assert stored.manifest == first
    assert "manifest.json.broken-1" in stored.notes[0]
    assert "generation 1 is used" in stored.notes[0]
    assert (tmp_path / "manifest.json.broken-1").read_bytes() == damage


def test_a_manifest_of_another_version_stays_where_it_is(tmp_path):
    """A093: what a newer version wrote is not broken, and must not be pushed aside."""
    path = tmp_path / "manifest.json"
    path.write_text(manifest_to_json(generation(None, 0)).replace("v1alpha1", "v2"), encoding="utf-8")
    with pytest.raises(ManifestError, match="unknown apiVersion"):
        read_current(tmp_path)
    with pytest.raises(ManifestError, match="unknown apiVersion"):
        write_manifest(tmp_path, generation(None, 1))
    assert path.exists()


def test_a_folder_in_use_is_refused(tmp_path):
    """A077: the lock is the kernel's, so it is held now and gone when its holder ends."""
    with lock_folder(tmp_path), pytest.raises(LockedError):
        write_manifest(tmp_path, generation(None, 0))
    write_manifest(tmp_path, generation(None, 0))
