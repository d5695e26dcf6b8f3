"""Pictures of runs: who held which GPUs, how many were at work, what policies gained. matplotlib draws.

Backgrounds are left clear and words are of a grey that can be read on white and on black.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from libra_plan.errors import InputError, writing
from libra_plan.models.lengths import FloatArray
from libra_plan.planner.simulate.figures import PairedRatio
from libra_plan.planner.simulate.record import Band, RunRecord, bins, held, used
from libra_plan.planner.simulate.simulate import Simulation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["FORMATS", "draw_all", "draw_allocation", "draw_gain", "draw_utilization", "ready_folder"]

FORMATS = (".svg", ".png")
_WORDS = "#7b7b80"  # 4.2 : 1 against white, 4.6 : 1 against GitHub's black
_HUES = (0.58, 0.08, 0.36, 0.93, 0.50, 0.76, 0.14, 0.0)
_OURS, _OTHERS = "#2a9d4a", "#8a8f98"
_STEP_S = 60.0
_TAIL = 3.0
"""Intervals are drawn up to so many times the largest mean."""


def ready_folder(folder: Path) -> None:
    """Make a folder for pictures; refuse where matplotlib is not installed, before anything runs."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise InputError(
            "pictures need matplotlib",
            got="no matplotlib in this environment",
            allowed="the package matplotlib",
            way_out="pip install '.[plot]' from a checkout, or pip install matplotlib",
        ) from None
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def draw_all(found: Simulation, folder: Path) -> None:
    """Draw the kept runs of each world, and the gains of all."""
    with writing(folder):
        if found.ratios:
            draw_gain(
                sorted(found.ratios, key=lambda each: list(found.look_s).index(each.world)), folder / "gain"
            )
        for world in dict.fromkeys(record.world for record in found.records):
            own = [record for record in found.records if record.world == world]
            draw_allocation(own, folder)
            draw_utilization(own, found.look_s[world], folder)


def draw_allocation(records: Sequence[RunRecord], folder: Path) -> list[Path]:
    """Draw the GPUs that tasks held over time: one panel a policy, all of one world and seed."""
    panels = [
        (record, edges, held(record, edges)) for record in records for edges in [bins(record, _STEP_S, 960)]
    ]
    return _over_time(panels, "GPUs held", folder / f"allocation-{records[0].world}-{records[0].seed}")


def draw_utilization(records: Sequence[RunRecord], look_s: float, folder: Path) -> list[Path]:
    """Draw the GPUs at work over time: one panel a policy, the GPUs held as a line above."""
    panels = [(record, edges, used(record, edges)) for record in records for edges in [bins(record, look_s)]]
    return _over_time(
        panels,
        "GPUs at work",
        folder / f"utilization-{records[0].world}-{records[0].seed}",
        lambda record, edges: _total(held(record, edges), len(edges) - 1),
    )


def draw_gain(ratios: Sequence[PairedRatio], path: Path) -> list[Path]:
    """Draw the ratio of every world and policy as a dot, its 95 % interval as a line, 1 as a rule."""
    from matplotlib.figure import Figure

    count = len(ratios) + len({each.world for each in ratios})
    figure = Figure(figsize=(8.0, 0.7 + 0.22 * count), layout="constrained")
    axes = figure.subplots()
    most = _TAIL * max(1.0, *(each.mean for each in ratios))
    at, names, worlds = 0.0, [], []
    for number, each in enumerate(ratios):
        if number == 0 or each.world != ratios[number - 1].world:
            at += 1.0
            worlds.append((at - 1.0, each.world))
        colour = _OURS if each.policy.startswith("ours") else _OTHERS
        if each.low is not None and each.high is not None:
            axes.plot([each.low, min(each.high, most)], [at, at], color=colour, linewidth=1.8)
        axes.plot([each.mean], [at], "o", color=colour, markersize=5)
        axes.annotate(
            f"{each.mean:.3f}", (1.01, at), xycoords=("axes fraction", "data"), va="center", fontsize=8,
            color=_WORDS,
        )  # fmt: skip
        names.append((at, each.policy))
        at += 1.0
    axes.axvline(1.0, color=_WORDS, linewidth=0.8, linestyle=":")
    axes.set_yticks([y for y, _ in (*names, *worlds)], [name for _, name in (*names, *worlds)], fontsize=8)
    for label in axes.get_yticklabels()[len(names) :]:
        label.set_fontweight("bold")
    axes.set_ylim(at - 0.4, -0.6)
    seeds = sorted({each.seeds for each in ratios})
    told = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    axes.set_xlabel(
        f"weighted throughput ÷ that of {ratios[0].over}; 95 % intervals over {told} paired seeds"
    )
    _plain(axes)
    return _saved(figure, path)


def _over_time(
    panels: Sequence[tuple[RunRecord, FloatArray, list[Band]]],
    what: str,
    path: Path,
    line: Callable[[RunRecord, FloatArray], FloatArray] | None = None,
) -> list[Path]:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(9.0, 0.9 + 1.7 * len(panels)), layout="constrained")
    rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    colours = _colours([band for _, _, bands in panels for band in bands])
    for axes, (record, edges, bands) in zip(rows, panels, strict=True):
        hours, bottom = edges / 3600.0, np.zeros(len(edges) - 1)
        for band in bands:
            top = bottom + band.gpus
            axes.stairs(
                top, hours, baseline=bottom, fill=True, color=colours[band.task, band.part], linewidth=0
            )
            bottom = top
        if line is not None:
            axes.stairs(line(record, edges), hours, color=_WORDS, linewidth=1.2)
        for at_s, _, repair_s in record.failures:
            axes.axvspan(
                at_s / 3600.0, min(record.hours, (at_s + repair_s) / 3600.0), ymax=0.02, color="#d1242f"
            )
        axes.set(xlim=(0.0, record.hours), ylim=(0.0, record.gpus))
        axes.set_title(record.policy, loc="left", fontsize=9, color=_WORDS)
        axes.set_ylabel(what, fontsize=8)
        _plain(axes)
    rows[-1].set_xlabel(f"hours of {panels[0][0].world}, seed {panels[0][0].seed}", fontsize=9)
    marks: list[Patch] = [
        Patch(color=colour, label=f"{task}: {part}") for (task, part), colour in colours.items()
    ]
    if line is not None:
        marks.append(Patch(fill=False, edgecolor=_WORDS, label="held"))
    if any(record.failures for record, _, _ in panels):
        marks.append(Patch(color="#d1242f", label="a GPU failed"))
    figure.legend(handles=marks, loc="outside right upper", fontsize=8, frameon=False, labelcolor=_WORDS)
    return _saved(figure, path)


def _total(bands: Sequence[Band], count: int) -> FloatArray:
    total = np.zeros(count)
    for band in bands:
        total = total + band.gpus
    return total


def _colours(bands: Sequence[Band]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Return each task a hue, and each of its parts a lightness."""
    found = {}
    tasks = list(dict.fromkeys(band.task for band in bands))
    for number, task in enumerate(tasks):
        parts = list(dict.fromkeys(band.part for band in bands if band.task == task))
        for at, part in enumerate(parts):
            light = 0.45 + 0.25 * at / max(1, len(parts) - 1)
            found[task, part] = colorsys.hls_to_rgb(_HUES[number % len(_HUES)], light, 0.5)
    return found


def _plain(axes: Axes) -> None:
    """Leave the ground clear, and draw rules and words in one grey."""
    axes.set_facecolor("none")
    axes.tick_params(colors=_WORDS, labelsize=8)
    axes.xaxis.label.set_color(_WORDS)
    axes.yaxis.label.set_color(_WORDS)
    for side, spine in axes.spines.items():
        spine.set_color(_WORDS)
        spine.set_visible(side in {"left", "bottom"})


def _saved(figure: Figure, path: Path) -> list[Path]:
    """Write both forms; no date in them, so that the same runs give the same bytes."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    found = []
    with matplotlib.rc_context({"svg.hashsalt": "libra-plan", "svg.fonttype": "none"}):
        for form in FORMATS:
            found.append(path.parent / (path.name + form))
            metadata = {"Date": None} if form == ".svg" else {"Software": None}
            figure.savefig(found[-1], metadata=metadata, transparent=True, dpi=110)
    return found
