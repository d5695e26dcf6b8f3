from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml
from profile_files import POINTS, profile_data, workload_data, write_folder, write_profile

from libra_plan.errors import ClusterError, InputError, ProfileError, WorkloadError
from libra_plan.profiles.catalog import (
    find_folder,
    find_profile,
    load_folder,
    load_profile,
    shipped_folder,
    user_folder,
)


def test_the_shipped_folder_is_right() -> None:
    """What users run first: three tasks, the measured profiles, one set of switching costs, no cluster."""
    folder = load_folder(shipped_folder(), library=())
    assert folder.workload is not None
    assert [task.id for task in folder.workload.tasks] == ["agent-7b", "reward-1.5b", "eval-7b"]
    assert (
        len(folder.profiles) == 11 + 12 + 3 + 7
    )  # h200-, h200b- and h200c- (measured here), aic- (published, serving)
    assert folder.cluster is None
    assert folder.switching["h200_sxm"].start_s.typical == pytest.approx(7.335)
    assert {"workload.yaml", "h200-switching/switching.yaml"} < set(folder.digests)


def test_rows_set_aside_in_the_shipped_profiles_are_told() -> None:
    """Three launch-bound rows of one sequence jump by a third: kept out, and said so."""
    folder = load_folder(shipped_folder(), library=())
    assert sum(len(profile.set_aside) for profile in folder.profiles.values()) == 3
    assert len(folder.warnings) == 3
    assert all("row set aside" in warning for warning in folder.warnings)


def test_changed_points_do_not_pass_for_the_measured_ones(tmp_path: Path) -> None:
    """The digest ties the description to the numbers."""
    folder = write_profile(tmp_path)
    (folder / "points.csv").write_text(POINTS.replace("0.02", "0.01"), encoding="utf-8")
    with pytest.raises(ProfileError, match="update points_sha256") as caught:
        load_profile(folder)
    assert caught.value.where is not None
    assert caught.value.where.key == "provenance.points_sha256"


def test_every_profile_needs_a_usable_point(tmp_path: Path) -> None:
    """A profile of failures alone would only fail later and elsewhere."""
    folder = write_profile(tmp_path, points="status,batch_sequences,seq_len_tokens\noom,1,512\n")
    with pytest.raises(ProfileError, match="no point of this profile can be used"):
        load_profile(folder)


def test_points_may_not_lie_elsewhere(tmp_path: Path) -> None:
    """A profile that is copied must carry its points with it."""
    folder = write_profile(tmp_path)
    data = {**profile_data(), "points": "../points.csv"}
    (folder / "profile.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(ProfileError, match="must lie beside"):
        load_profile(folder)


def test_two_profiles_with_one_id_are_refused(tmp_path: Path) -> None:
    """Roles name profiles by id."""
    shutil.copytree(write_profile(tmp_path), tmp_path / "copy")
    with pytest.raises(ProfileError, match="two profiles have the id `p`"):
        load_folder(tmp_path, library=())


def test_two_switching_files_for_one_class_are_refused(tmp_path: Path) -> None:
    """Only one of them could be used."""
    for name in ("a", "b"):
        shutil.copytree(shipped_folder() / "h200-switching", tmp_path / name)
    with pytest.raises(ProfileError, match="two switching files"):
        load_folder(tmp_path, library=())


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    """`cluster.yaml` beside `cluster.json`: neither may win in silence."""
    for ending in ("yaml", "json"):
        (tmp_path / f"cluster.{ending}").write_text("{}", encoding="utf-8")
    with pytest.raises(ClusterError, match="more than one cluster file"):
        load_folder(tmp_path, library=())


def test_code_and_other_folders_are_ignored(tmp_path: Path) -> None:
    """The repository's own profiles/ is also a Python package."""
    write_folder(tmp_path)
    (tmp_path / "__init__.py").write_text("raise SystemExit", encoding="utf-8")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "points.csv").write_text(POINTS, encoding="utf-8")
    folder = load_folder(tmp_path, library=())
    assert sorted(folder.profiles) == ["d", "s", "t"]
    assert len(folder.warnings) == 1, "only the folder that looks like a profile is worth a word"
    assert "half" in folder.warnings[0]


def test_a_missing_profile_comes_from_the_library(tmp_path: Path) -> None:
    """A user's folder may hold a workload alone; profiles and switching costs are looked up."""
    data = workload_data()
    data["tasks"][0]["roles"][1]["profiles"] = ["h200-qwen2.5-7b-train"]
    folder = load_folder(write_folder(tmp_path / "own", data), library=(tmp_path / "none", shipped_folder()))
    assert folder.profiles["h200-qwen2.5-7b-train"].path.parent == shipped_folder()
    assert "h200-qwen2.5-7b-train/points.csv" in folder.digests
    assert set(folder.switching) == {"h200_sxm"}


def test_the_library_order_is_kept(tmp_path: Path) -> None:
    """The user's own profile comes before a shipped one of the same name."""
    data = workload_data()
    data["tasks"][0]["roles"][1]["profiles"] = ["mine"]
    for place in ("first", "second"):
        write_profile(tmp_path / place, "mine", "train")
    root = write_folder(tmp_path / "own", data)
    folder = load_folder(root, library=(tmp_path / "first", tmp_path / "second"))
    assert folder.profiles["mine"].path == tmp_path / "first" / "mine"


def test_a_json_workload_is_read(tmp_path: Path) -> None:
    """Programs write JSON."""
    (tmp_path / "cluster.json").write_text(
        '{"schema_version": 1, "nodes": [{"id": "a", "gpu_class": "h", "gpu_count": 2}]}', encoding="utf-8"
    )
    cluster = load_folder(tmp_path, library=()).cluster
    assert cluster is not None
    assert cluster.nodes[0].gpu_count == 2


def test_digests_change_with_any_input(tmp_path: Path) -> None:
    """A plan states what it was made from."""
    root = write_folder(tmp_path)
    before = load_folder(root, library=()).digests
    path = root / "workload.yaml"
    path.write_text(path.read_text(encoding="utf-8") + "# a word\n", encoding="utf-8")
    after = load_folder(root, library=()).digests
    assert {name for name in before if before[name] != after[name]} == {"workload.yaml"}


def test_folders_are_found_by_path_then_user_then_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Explicit beats the user's own, which beats what is shipped."""
    environment = {"LIBRA_PLAN_PROFILES": str(tmp_path / "user")}
    monkeypatch.chdir(tmp_path)
    assert find_folder("profiles", environment) == shipped_folder()
    (tmp_path / "user" / "profiles").mkdir(parents=True)
    assert find_folder("profiles/", environment) == tmp_path / "user" / "profiles"
    (tmp_path / "profiles").mkdir()
    assert find_folder("profiles", environment) == Path("profiles")
    with pytest.raises(ProfileError, match="no such profiles folder"):
        find_folder("elsewhere", environment)
    (tmp_path / "a-file").touch()
    with pytest.raises(ProfileError, match="a file"):
        find_folder("a-file", environment)


def test_the_user_folder_follows_the_xdg_rules() -> None:
    """The first set variable decides."""
    assert user_folder({"LIBRA_PLAN_PROFILES": "/p", "XDG_DATA_HOME": "/d"}) == Path("/p")
    assert user_folder({"XDG_DATA_HOME": "/d", "HOME": "/h"}) == Path("/d/libra-plan/profiles")
    assert user_folder({"HOME": "/h"}) == Path("/h/.local/share/libra-plan/profiles")


@pytest.mark.parametrize("load", [load_folder, load_profile])
def test_a_missing_folder_is_an_input_error(tmp_path: Path, load: object) -> None:
    """A wrong path is the user's."""
    with pytest.raises(InputError):
        load(tmp_path / "none")  # type: ignore[operator]


def test_an_unknown_profile_is_told_with_all_that_can_be_named(tmp_path: Path) -> None:
    """Not only the profiles that other roles name already, and the nearest in size and phase first."""
    data = workload_data()
    data["tasks"][0]["roles"][1]["profiles"] = ["h200-qwen2.5-05b-train"]
    with pytest.raises(WorkloadError) as caught:
        load_folder(write_folder(tmp_path / "own", data), library=(shipped_folder(),))
    assert caught.value.allowed is not None
    listed = caught.value.allowed.split(", ")
    assert listed[0] == "h200-qwen2.5-0.5b-train"
    assert len(listed) == 8
    assert listed[-1].endswith(f"and {len(load_folder(shipped_folder(), library=()).profiles) + 3 - 8} more")
    assert caught.value.way_out == "did you mean `h200-qwen2.5-0.5b-train`?"
    assert caught.value.where is not None
    assert caught.value.where.key == "tasks[0].roles[1].profiles[0]"


def test_a_profile_of_gigabytes_is_refused(tmp_path: Path) -> None:
    """Every plan on it would be refused for memory, far from the slip."""
    folder = write_profile(tmp_path)
    data = profile_data()
    data["hardware"]["memory_mib"] = 141
    (folder / "profile.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(ProfileError, match="MiB, not GB") as caught:
        load_profile(folder)
    assert caught.value.where is not None
    assert caught.value.where.key == "hardware.memory_mib"


def test_a_misspelt_class_of_the_cluster_is_warned_of(tmp_path: Path) -> None:
    """The folder's profiles say which classes can be planned on."""
    root = write_folder(tmp_path)
    (root / "cluster.yaml").write_text(
        "schema_version: 1\nnodes: [{id: a, gpu_class: h200_smx, gpu_count: 1}]\n", encoding="utf-8"
    )
    (warning,) = load_folder(root, library=()).warnings
    assert warning.endswith("GPU class h200_smx; did you mean `h200_sxm`?")


def test_a_profile_is_found_by_its_name(tmp_path: Path) -> None:
    """What `solve` knows by name, verbs for one profile must know too."""
    assert find_profile("h200-qwen2.5-7b-train").parent == shipped_folder()
    assert find_profile(write_profile(tmp_path)).is_dir()
    with pytest.raises(ProfileError, match="did you mean `h200-"):
        find_profile("h200-qwen2.5-7b-trian")


def test_only_profiles_that_the_workload_names_are_read(tmp_path: Path) -> None:
    """A planner needs no others: reading all took most of the time before a solve."""
    root = write_folder(tmp_path)
    (write_profile(root, "broken") / "points.csv").write_text("no points", encoding="utf-8")
    folder = load_folder(root, library=(), named_only=True)
    assert sorted(folder.profiles) == ["d", "t"]
    assert not any("broken" in name for name in folder.digests)
    with pytest.raises(ProfileError, match="broken"):
        load_folder(root, library=())


def test_a_profile_in_a_folder_of_another_name_is_found_by_its_id(tmp_path: Path) -> None:
    """The id is what counts: a copy under another name must not hide the profile."""
    root = write_folder(tmp_path)
    (root / "d").rename(root / "elsewhere")
    folder = load_folder(root, library=(), named_only=True)
    assert folder.profiles["d"].path == root / "elsewhere"
