"""Checking a profile against its own points, each left out with its group."""

from __future__ import annotations

import builtins

import pytest

from libra_plan.errors import InputError
from libra_plan.models.curves.errors import check_profile
from libra_plan.models.curves.plot import plot_checks
from libra_plan.models.fit import fit_profile
from libra_plan.profiles.catalog import load_profile, shipped_folder


def _checked(name):
    loaded = load_profile(shipped_folder() / name)
    return loaded, check_profile(loaded, fit_profile(loaded.file, loaded.points))


def test_worst_points_are_named_by_their_line():
    """The point to look at is found by file and line, also below rows that were set aside."""
    loaded, check = _checked("h200-qwen2.5-1.5b-score")
    assert loaded.set_aside
    lines = (loaded.path / "points.csv").read_text().splitlines()
    header = lines[0].split(",")
    for point in check.left_out:
        path, _, line = point.where.rpartition(":")
        assert path.endswith("h200-qwen2.5-1.5b-score/points.csv")
        row = dict(zip(header, lines[int(line) - 1].split(","), strict=True))
        assert (float(row["batch_sequences"]), float(row["seq_len_tokens"])) == (point.batch, point.length)
        column = "time_s" if point.quantity == "time_s" else "peak_reserved_mib"
        assert float(row[column]) == point.measured


def test_each_point_is_listed_once_worst_first():
    """A point is left out with its batch and with its length; only its worse error counts."""
    _, check = _checked("h200-qwen2.5-7b-decode")
    assert len({(point.where, point.quantity) for point in check.left_out}) == len(check.left_out)
    errors = [abs(point.error) for point in check.left_out]
    assert errors == sorted(errors, reverse=True)
    (layout,) = check.layouts
    assert layout.time.largest == pytest.approx(
        max(abs(p.error) for p in check.left_out if p.quantity == "time_s")
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # old matplotlib, new pyparsing
@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_a_plot_is_the_same_each_time(tmp_path, name):
    """A picture in a repository must not change when nothing has."""
    pytest.importorskip("matplotlib")
    _, check = _checked("h200-qwen2.5-7b-decode")
    plot_checks([check], tmp_path / name)
    first = (tmp_path / name).read_bytes()
    plot_checks([check], tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert first.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml")


def test_a_plot_of_another_kind_is_refused(tmp_path):
    """The ending says what is wanted, and only two kinds can be had."""
    with pytest.raises(InputError, match=r"allowed: \.png, \.svg"):
        plot_checks([], tmp_path / "a.pdf")


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    """Plotting is an extra: who lacks it must learn its name."""
    load = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        InputError, match=r"pip install '\.\[plot\]' from a checkout, or pip install matplotlib"
    ):
        plot_checks([], tmp_path / "a.png")
