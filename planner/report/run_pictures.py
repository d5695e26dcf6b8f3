"""Pictures of simulated runs: GPUs that each task held, GPUs at work, and gains of policies."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from libra_plan.errors import writing
from libra_plan.models.lengths import FloatArray
from libra_plan.planner.report.svg import Svg
from libra_plan.planner.simulate.figures import PairedRatio
from libra_plan.planner.simulate.record import Band, RunRecord, bins, held, used
from libra_plan.planner.simulate.simulate import Simulation

__all__ = ["draw_runs", "gain_svg", "held_svg", "used_svg"]

_GREY, _RED = "#7b7b80", "#d1242f"
_HUES = (0.58, 0.08, 0.36, 0.93, 0.50, 0.76, 0.14, 0.0)
_OURS, _OTHERS = "#2a9d4a", "#8a8f98"
_STEP_S = 60.0
_TAIL = 3.0
"""Intervals are drawn up to this many times the largest mean."""
_LEFT, _WIDE, _LEGEND = 60.0, 640.0, 200.0
_PANEL, _GAP, _ROW = 110.0, 34.0, 18.0


def draw_runs(found: Simulation, folder: Path) -> None:
    """Write the pictures of the kept runs of each world, and of the gains of all."""
    drawn = {}
    if found.ratios:
        drawn["gain"] = gain_svg(found.ratios)
    for world in dict.fromkeys(record.world for record in found.records):
        own = [record for record in found.records if record.world == world]
        drawn[f"allocation-{world}-{own[0].seed}"] = held_svg(own)
        drawn[f"utilization-{world}-{own[0].seed}"] = used_svg(own, found.look_s[world])
    with writing(folder):
        for name, text in drawn.items():
            (folder / f"{name}.svg").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class _Panel:
    """One run over time: the edges of its bins in seconds, what is stacked, and what is a line above."""

    record: RunRecord
    edges: FloatArray
    bands: list[Band]
    line: FloatArray | None = None


def held_svg(records: Sequence[RunRecord]) -> str:
    """Return the picture of the GPUs that tasks held over time in one world: one panel for each policy."""
    panels = []
    for record in records:
        edges = bins(record, _STEP_S, 960)
        panels.append(_Panel(record, edges, held(record, edges)))
    return _over_time(panels, "GPUs held")


def used_svg(records: Sequence[RunRecord], look_s: float) -> str:
    """Return the picture of the GPUs at work over time, the GPUs held as a line above."""
    panels = []
    for record in records:
        edges = bins(record, look_s)
        total = np.sum([band.gpus for band in held(record, edges)], axis=0) + np.zeros(len(edges) - 1)
        panels.append(_Panel(record, edges, used(record, edges), total))
    return _over_time(panels, "GPUs at work")


def _over_time(panels: Sequence[_Panel], what: str) -> str:
    picture = Svg(_LEFT + _WIDE + _LEGEND, len(panels) * (_PANEL + _GAP) + _GAP)
    colours = _colours([band for panel in panels for band in panel.bands])
    for number, panel in enumerate(panels):
        _draw_panel(picture, panel, colours, what, number * (_PANEL + _GAP) + _GAP)
    hours, first = panels[0].record.hours, panels[0].record
    bottom = len(panels) * (_PANEL + _GAP)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
        label = f"{hours * share:g}"
        picture.words(_LEFT + _WIDE * share, bottom + 14, label, fill=_GREY, text_anchor=anchor, font_size=10)
    text = f"hours of {first.world}, seed {first.seed}"
    picture.words(_LEFT + _WIDE / 2, bottom + 28, text, fill=_GREY, text_anchor="middle", font_size=10)
    marks = [(colour, f"{task}: {part}") for (task, part), colour in colours.items()]
    if any(panel.line is not None for panel in panels):
        marks.append((_GREY, "held"))
    if any(panel.record.failures for panel in panels):
        marks.append((_RED, "a GPU failed"))
    for number, (colour, name) in enumerate(marks):
        y = _GAP + number * _ROW
        picture.rect(_LEFT + _WIDE + 14, y, 10, 10, fill=colour)
        picture.words(_LEFT + _WIDE + 30, y + 9, name, font_size=11)
    return picture.text


def _draw_panel(
    picture: Svg, panel: _Panel, colours: dict[tuple[str, str], str], what: str, top: float
) -> None:
    record, seconds = panel.record, panel.record.hours * 3600.0

    def x(at_s: float) -> float:
        return _LEFT + _WIDE * min(1.0, at_s / seconds)

    def y(gpus: float) -> float:
        return top + _PANEL * (1.0 - gpus / record.gpus)

    picture.words(_LEFT, top - 5, record.policy, fill=_GREY)
    picture.words(_LEFT - 6, top + 8, f"{record.gpus}", fill=_GREY, text_anchor="end", font_size=10)
    picture.words(_LEFT - 6, top + _PANEL, "0", fill=_GREY, text_anchor="end", font_size=10)
    middle = top + _PANEL / 2
    turned = f"rotate(-90 14 {middle:g})"
    picture.words(14, middle, what, fill=_GREY, text_anchor="middle", font_size=10, transform=turned)
    bottom = np.zeros(len(panel.edges) - 1)
    for band in panel.bands:
        upper = bottom + band.gpus
        for first, end in _stretches(bottom, upper):
            left, right, low, high = panel.edges[first], panel.edges[end], bottom[first], upper[first]
            if high > low:
                size = (x(right) - x(left), y(low) - y(high))
                picture.rect(x(left), y(high), *size, fill=colours[band.task, band.part])
        bottom = upper
    if panel.line is not None:
        steps = [
            (x(at), y(gpus))
            for number, gpus in enumerate(panel.line.tolist())
            for at in panel.edges[number : number + 2].tolist()
        ]
        picture.line(steps, stroke=_GREY, stroke_width=1.2)
    for at_s, _, repair_s in record.failures:
        if at_s < seconds:
            picture.rect(x(at_s), top + _PANEL - 3, x(at_s + repair_s) - x(at_s), 3, fill=_RED)
    frame = [(_LEFT, top), (_LEFT, top + _PANEL), (_LEFT + _WIDE, top + _PANEL)]
    picture.line(frame, stroke=_GREY)


def _stretches(low: FloatArray, high: FloatArray) -> Iterator[tuple[int, int]]:
    """Return the first bin and the one after the last of every stretch in which both stay the same."""
    at = 0
    for _, alike in groupby(zip(low.tolist(), high.tolist(), strict=True)):
        count = len(list(alike))
        yield at, at + count
        at += count


def _colours(bands: Sequence[Band]) -> dict[tuple[str, str], str]:
    """Return a colour for every part: each task has a hue, and each of its parts a lightness."""
    found = {}
    for number, task in enumerate(dict.fromkeys(band.task for band in bands)):
        parts = list(dict.fromkeys(band.part for band in bands if band.task == task))
        for at, part in enumerate(parts):
            light = 0.45 + 0.25 * at / max(1, len(parts) - 1)
            rgb = colorsys.hls_to_rgb(_HUES[number % len(_HUES)], light, 0.5)
            found[task, part] = "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
    return found


def gain_svg(ratios: Sequence[PairedRatio]) -> str:
    """Return the picture of ratios: a dot for each world and policy, with its 95 % interval."""
    worlds = list(dict.fromkeys(each.world for each in ratios))
    most = _TAIL * max(1.0, *(each.mean for each in ratios))
    ends = [min(each.high or each.mean, most) for each in ratios]
    low, high = min(1.0, *(each.low or each.mean for each in ratios)), max(1.0, *ends)
    margin, label = 0.05 * (high - low or 1.0), 160.0

    def x(ratio: float) -> float:
        return label + _WIDE * (ratio - low + margin) / (high - low + 2 * margin)

    bottom = _ROW * (len(ratios) + len(worlds) + 1)
    picture = Svg(label + _WIDE + 60, bottom + 40)
    picture.line([(x(1.0), _ROW / 2), (x(1.0), bottom)], stroke=_GREY, stroke_dasharray="2 3")
    y = 0.0
    for world in worlds:
        y += _ROW
        picture.words(label - 10, y + 4, world, text_anchor="end", font_weight="bold")
        for each in (ratio for ratio in ratios if ratio.world == world):
            y += _ROW
            colour = _OURS if each.policy.startswith("ours") else _OTHERS
            picture.words(label - 10, y + 4, each.policy, text_anchor="end")
            if each.low is not None and each.high is not None:
                picture.line(
                    [(x(each.low), y), (x(min(each.high, most)), y)], stroke=colour, stroke_width=1.8
                )
            picture.rect(x(each.mean) - 3, y - 3, 6, 6, fill=colour, rx=3)
            picture.words(label + _WIDE + 10, y + 4, f"{each.mean:.3f}", fill=_GREY)
    step = 10.0 ** math.floor(math.log10(high - low + 2 * margin))
    for ratio in np.arange(math.ceil((low - margin) / step) * step, high + margin, step):
        picture.words(
            x(float(ratio)), bottom + 12, f"{ratio:.4g}", fill=_GREY, text_anchor="middle", font_size=10
        )
    seeds = sorted({each.seeds for each in ratios})
    told = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    what = f"weighted throughput ÷ that of {ratios[0].over}; 95 % intervals over {told} paired seeds"
    picture.words(label + _WIDE / 2, bottom + 30, what, fill=_GREY, text_anchor="middle")
    return picture.text
