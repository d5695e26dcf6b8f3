"""`simulate --fit`: a world file from a user's own recordings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from libra_plan.cli import render
from libra_plan.cli.errors import writing
from libra_plan.cli.flags import Form
from libra_plan.errors import InputError

if TYPE_CHECKING:
    from libra_plan.models.fit import FittedProfile
    from libra_plan.planner.simulate.fit.fit import Fit
    from libra_plan.planner.simulate.fit.recorded import Recorded
    from libra_plan.planner.simulate.world import World

__all__ = ["fit_recordings"]

_SHOWN_LEFT_OUT = 5
_PLACED = re.compile(r"([A-Za-z][\w.-]*)=(\d{1,6})x(\d{1,4})")


def fit_recordings(
    worlds: Sequence[World],
    recordings: Sequence[Path],
    out: Path | None,
    placed: str | None,
    task: str,
    samples: int | None,
    profiles: Sequence[str],
    form: Form,
) -> None:
    """Fit, write the world where asked, and print what is fitted and what assumed."""
    from libra_plan.planner.simulate.fit.fit import fit_world
    from libra_plan.planner.simulate.fit.sources import read_recordings
    from libra_plan.planner.simulate.world import read_world
    from libra_plan.planner.telemetry.readers import ReaderFacts
    from libra_plan.profiles.profile_folder import yaml_text

    if len(worlds) != 1:
        raise InputError(
            "a fit begins with one base world",
            got=", ".join(world.id for world in worlds),
            allowed="one world, whose figures hold where the recordings tell nothing",
        )
    places = _placed(placed)
    gpus = sum(map(sum, places.values())) if isinstance(places, dict) else places
    seen = read_recordings(list(recordings), ReaderFacts(task, gpus, samples))
    name = f"{worlds[0].id}-fitted" if out is None else out.stem
    fit = fit_world(worlds[0], seen, places, name, [_fitted(each) for each in profiles])
    text = yaml_text(fit.world)
    if out is not None:
        with writing(out):
            out.write_text(text, encoding="utf-8")
        read_world(out)  # says what a world must not be, should the base and the recording not go together
    if form is not Form.TABLE:
        render.print_data(_data(fit, seen), form.value)
    elif out is None:
        render.print_text(text.rstrip("\n"))
    else:
        _print(fit)
    _tell(fit, seen, out)


def _fitted(name: str) -> FittedProfile:
    from libra_plan.models.fits import cached_fit
    from libra_plan.profiles.catalog import find_profile, load_profile

    profile = load_profile(find_profile(name))
    return cached_fit(profile)


def _placed(text: str | None) -> dict[str, tuple[int, ...]] | int | None:
    """Read `64`, or `rollout=16x2,train=4x8`: replicas × GPUs of each."""
    if text is None:
        return None
    if text.isdecimal() and int(text) > 0:
        return int(text)
    found = {}
    for part in text.split(","):
        match = _PLACED.fullmatch(part.strip())
        if match is None or int(match[2]) < 1 or int(match[3]) < 1:
            raise InputError(
                "not a placement",
                got=part,
                allowed="the GPUs that all roles share (64), or ROLE=REPLICASxGPUS with commas",
                way_out="for example --placed rollout=16x2,train=4x8",
            )
        found[match[1]] = (int(match[3]),) * int(match[2])
    return found


def _data(fit: Fit, seen: Recorded) -> dict[str, Any]:
    import msgspec

    return {
        "base": fit.base,
        "world": msgspec.to_builtins(fit.world),
        "recordings": [{"path": path, "kind": kind} for path, kind in seen.used],
        "fitted": [asdict(figure) for figure in fit.figures],
        "assumed": [{"figure": key, "why": why} for key, why in fit.assumed],
        "doubts": list(fit.doubts),
        "left_out": seen.left_out,
    }


def _print(fit: Fit) -> None:
    rows = [
        [each.key, f"{each.value:.4g}", each.unit,
         "–" if each.low is None else f"{each.low:.4g} – {each.high:.4g}", f"{each.samples:,}", each.of]
        for each in fit.figures
    ]  # fmt: skip
    render.print_table(["fitted", "value", "unit", "90 %", "from", "of"], rows, right=(1, 3, 4))


def _tell(fit: Fit, seen: Recorded, out: Path | None) -> None:
    for path, kind in seen.used:
        render.note(f"read {path}: {kind}")
    for key, why in fit.assumed:
        render.note(f"assumed, as in {fit.base}: {key}: {why}")
    for doubt in fit.doubts:
        render.note(f"warning: {doubt}")
    for line in seen.left_out[:_SHOWN_LEFT_OUT]:
        render.note(f"left out: {line}")
    if len(seen.left_out) > _SHOWN_LEFT_OUT:
        render.note(f"left out: {len(seen.left_out) - _SHOWN_LEFT_OUT} more")
    if out is not None:
        render.note(f"wrote {out}")
