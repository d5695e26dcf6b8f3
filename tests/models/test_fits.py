import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from affine_profile import profile_file
from fitting import GRID, points_of

from libra_plan.models import fits as fit_cache
from libra_plan.models.fit import fit_profile
from libra_plan.models.fits import cache_folder, cached_fit, dump_fit, fit_key, load_fit
from libra_plan.models.query import Query
from libra_plan.profiles.catalog import LoadedProfile

FILE = profile_file("decode")
POINTS = points_of()
LOADED = LoadedProfile(FILE, tuple(POINTS), Path())


def test_a_stored_fit_answers_like_the_fit():
    """A solve from the cache must equal a solve without it, to the last bit."""
    fitted = fit_profile(FILE, POINTS)
    loaded = load_fit(dump_fit(fitted))
    assert loaded == fitted
    query = Query(7, 3000)
    assert loaded.time_s(query) == fitted.time_s(query)
    assert loaded.memory_mib(query) == fitted.memory_mib(query)
    assert loaded.decode_coefficients() == fitted.decode_coefficients()


def test_a_second_fit_comes_from_the_cache(tmp_path):
    """The entry that was written is the one that is read, and nothing else lies about."""
    first = cached_fit(LOADED, folder=tmp_path)
    entries = list((tmp_path / "fits").iterdir())
    assert [entry.name for entry in entries] == [f"{fit_key(LOADED)}.json"]
    assert cached_fit(LOADED, folder=tmp_path) == first


def test_damaged_entries_are_ignored_and_written_again(tmp_path):
    """A truncated or edited cache must not change a plan, nor stop one."""
    first = cached_fit(LOADED, folder=tmp_path)
    (entry,) = (tmp_path / "fits").iterdir()
    whole = entry.read_bytes()
    for damage in (b"", b"{}", whole[:-20], whole.replace(b"0.005", b"0.006")):
        entry.write_bytes(damage)
        assert cached_fit(LOADED, folder=tmp_path) == first
        assert entry.read_bytes() == whole


def test_other_points_have_another_key():
    """One changed row must not be answered from the old fit."""
    assert fit_key(LOADED) != fit_key(replace(LOADED, points=LOADED.points[:-1]))
    assert fit_key(LOADED) != fit_key(replace(LOADED, file=profile_file("decode", name="other")))
    assert fit_key(LOADED) == fit_key(
        LoadedProfile(profile_file("decode"), tuple(points_of(grid=list(GRID))), Path())
    )


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path):
    """Read-only homes are common in containers."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert cached_fit(LOADED, folder=blocked).layouts


def test_the_folder_follows_the_environment(tmp_path):
    """Users move caches with the usual variables."""
    assert cache_folder({"LIBRA_PLAN_CACHE": "/a", "XDG_CACHE_HOME": "/b"}).as_posix() == "/a"
    assert cache_folder({"XDG_CACHE_HOME": "/b"}).as_posix() == "/b/libra-plan"
    assert cache_folder({"XDG_CACHE_HOME": "b"}).is_absolute()  # the XDG specification wants it ignored
    assert cache_folder({}).parts[-2:] == (".cache", "libra-plan")


def test_a_solve_from_the_cache_does_not_import_scipy(tmp_path):
    """Scipy takes a third of a second to import; only fitting may pay for it."""
    entry = tmp_path / "fit"
    entry.write_bytes(dump_fit(fit_profile(FILE, POINTS)))
    code = (
        "import sys, pathlib\n"
        "from libra_plan.models.fit import Query\n"
        "from libra_plan.models.fits import load_fit\n"
        f"fit = load_fit(pathlib.Path({str(entry)!r}).read_bytes())\n"
        "fit.time_s(Query(7, 3000)), fit.memory_mib(Query(7, 3000)), fit.max_batch(3000, 90000.0)\n"
        "sys.exit(1 if 'scipy' in sys.modules else 0)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_key_stands_for_all_code_of_models(monkeypatch, tmp_path):
    """A fit calls most of models: a fit of an older text of any of it must not be found."""
    monkeypatch.setattr(fit_cache, "__file__", str(tmp_path / "fit_cache.py"))
    keys = []
    for text in ("A = 1\n", "A = 2\n"):
        (tmp_path / "states.py").write_text(text)
        fit_cache._code_digest.cache_clear()
        keys.append(fit_key(LOADED))
    fit_cache._code_digest.cache_clear()
    assert keys[0] != keys[1]
