"""A user's own files, where there may be no such user."""

from __future__ import annotations

import pwd
from pathlib import Path

import pytest

from libra_plan.models.fits import cache_folder
from libra_plan.profiles.catalog import user_folder
from libra_plan.profiles.home import home_folder


def test_the_home_is_the_one_that_is_named() -> None:
    """What the environment says goes before what the machine knows."""
    assert home_folder({"HOME": "/h"}) == Path("/h")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/libra-plan")


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}])
def test_a_user_whom_the_machine_does_not_know_can_plan(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers run under numbers that have no name and no home: that is no reason to fail."""

    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert home_folder(environment) == Path("/")
    assert cache_folder(environment) == Path("/.cache/libra-plan")
    assert user_folder(environment) == Path("/.local/share/libra-plan/profiles")
