"""Pictures of what was predicted against what was measured."""

from __future__ import annotations

import builtins

import pytest

from libra_plan.errors import InputError
from libra_plan.models.curves.errors import check_profile
from libra_plan.models.curves.plot import plot_checks
from libra_plan.models.fit import fit_profile
from libra_plan.profiles.catalog import load_profile, shipped_folder


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # old matplotlib, new pyparsing
@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_a_plot_is_the_same_each_time(tmp_path, name):
    """A picture in a repository must not change when nothing has."""
    pytest.importorskip("matplotlib")
    loaded = load_profile(shipped_folder() / "h200-qwen2.5-7b-decode")
    check = check_profile(loaded, fit_profile(loaded.file, loaded.points))
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
