"""An emit replaces what an earlier one wrote, and nothing else."""

from __future__ import annotations

import json

import pytest

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.emit import INDEX, write_emitted

OLD = {"README.md": "one\n", "a/actor/n0.sh": "1\n", "a/actor/n1.sh": "1\n", "b/train/n1.sh": "1\n"}
NEW = {"README.md": "two\n", "a/actor/n0.sh": "2\n"}


def emit(folder, files):
    return write_emitted(folder, files, launcher="torchrun", manifest_digest="sha256:x")


def names(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {INDEX}


def test_scripts_of_an_earlier_generation_go(tmp_path):
    """A script left over would start ranks of a plan that no longer holds."""
    emit(tmp_path, OLD)
    assert emit(tmp_path, NEW).removed == ("a/actor/n1.sh", "b/train/n1.sh")
    assert names(tmp_path) == set(NEW)
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "README.md").read_text() == "two\n"
    assert set(json.loads((tmp_path / INDEX).read_text())["files"]) == set(NEW)


def test_files_of_others_stay(tmp_path):
    """The folder may hold notes and logs that no emit wrote."""
    emit(tmp_path, OLD)
    (tmp_path / "b/train/out.log").write_text("steps\n")
    (tmp_path / "notes.txt").write_text("mine\n")
    emit(tmp_path, NEW)
    assert names(tmp_path) == {*NEW, "notes.txt", "b/train/out.log"}


@pytest.mark.parametrize("name", ["README.md", "a/actor/n1.sh"])
def test_edited_files_are_refused_and_nothing_is_written(tmp_path, name):
    """Work that somebody put into a script is not thrown away, whether it would be replaced or removed."""
    emit(tmp_path, OLD)
    (tmp_path / name).write_text("edited\n")
    with pytest.raises(ManifestError, match="would be lost") as caught:
        emit(tmp_path, NEW)
    assert caught.value.got == name
    assert names(tmp_path) == set(OLD)
    assert (tmp_path / "a/actor/n0.sh").read_text() == "1\n"


def test_a_file_no_emit_wrote_is_not_replaced(tmp_path):
    """A project's own README.md is not ours to write over."""
    (tmp_path / "README.md").write_text("my project\n")
    with pytest.raises(ManifestError, match="would be lost"):
        emit(tmp_path, NEW)
    assert names(tmp_path) == {"README.md"}


def test_an_emit_cut_short_can_be_run_again(tmp_path):
    """After a crash some files are new and the index is old."""
    emit(tmp_path, OLD)
    (tmp_path / "README.md").write_text(NEW["README.md"])
    (tmp_path / "b/train/n1.sh").unlink()
    assert emit(tmp_path, NEW).removed == ("a/actor/n1.sh",)
    assert names(tmp_path) == set(NEW)


@pytest.mark.parametrize("name", ["../outside.sh", "/etc/hostname", "link/outside.sh"])
def test_an_index_that_names_files_elsewhere_is_refused(tmp_path, name):
    """An index is a file that anybody can edit; it must not lead to what lies outside the folder."""
    folder = tmp_path / "scripts"
    emit(folder, OLD)
    (tmp_path / "outside.sh").write_text("1\n")
    (folder / "link").symlink_to(tmp_path)
    index = json.loads((folder / INDEX).read_text())
    index["files"][name] = index["files"]["a/actor/n0.sh"]
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(ManifestError, match="earlier emit"):
        emit(folder, NEW)
    assert (tmp_path / "outside.sh").exists()


def test_an_index_that_cannot_be_read_is_refused(tmp_path):
    """Without it nobody knows which files are ours."""
    emit(tmp_path, OLD)
    (tmp_path / INDEX).write_text("{")
    with pytest.raises(ManifestError, match="earlier emit"):
        emit(tmp_path, NEW)
    assert names(tmp_path) == set(OLD)
