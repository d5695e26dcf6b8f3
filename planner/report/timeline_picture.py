"""A picture of what was recorded as SVG: findings, roles at work, and each GPU's utilization and memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import groupby
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np

if TYPE_CHECKING:
    from libra_plan.planner.doctor import Diagnosis, Evidence, Finding, Thresholds
    from libra_plan.planner.doctor.tracks import Floats, GpuTrack, RoleTrack

__all__ = ["timeline_svg"]

_HEAT = ("#eef3f8", "#c6d8ea", "#94b8d9", "#5f93c4", "#34689c")
_LEVELS = {"note": "#bbbbbb", "warning": "#ee8866", "critical": "#cc3311"}
_UNKNOWN = "#ffffff"
_LANE, _BAR, _MARK, _LEFT, _WIDTH, _TOP = 22, 18, 18, 190, 860, 34
_BINS = 430
_MOST_LANES = 64
_WALL_CLOCK_S = 1e9


class _Axis:
    """Where a moment is, in pixels and bins."""

    def __init__(self, began_s: float, ended_s: float) -> None:
        self.began_s, self.length_s = began_s, max(ended_s - began_s, 1.0)

    def x(self, at_s: float) -> float:
        """Give the pixel."""
        return _LEFT + _WIDTH * min(max((at_s - self.began_s) / self.length_s, 0.0), 1.0)

    def bins(self, start_s: Floats, values: Floats, seconds: Floats, window_s: float) -> Floats:
        """Give the mean of known values in each bin, weighted by time; NaN where nothing is known.

        A window longer than a bin fills all the bins it covers.
        """
        total, weight = np.zeros(_BINS), np.zeros(_BINS)
        known = ~np.isnan(values) & (seconds > 0)
        wide = self.length_s / _BINS
        first = np.clip(((start_s[known] - self.began_s) / wide).astype(int), 0, _BINS - 1)
        for step in range(int(window_s // wide) + 1):
            places = first + step
            inside = places * wide < (start_s[known] - self.began_s) + window_s
            inside &= places < _BINS
            np.add.at(total, places[inside], (values * seconds)[known][inside])
            np.add.at(weight, places[inside], seconds[known][inside])
        with np.errstate(invalid="ignore"):
            means: Floats = total / weight
        return means


def timeline_svg(diagnosis: Diagnosis) -> str:
    """Draw the recording: darker is busier, white is unknown; the red line is the share of memory used."""
    evidence, limits = diagnosis.evidence, diagnosis.limits
    began_s, ended_s = _ends(evidence, limits)
    axis = _Axis(began_s, ended_s)
    gpus = evidence.gpus[:_MOST_LANES]
    roles_at = _TOP + _MARK * len(diagnosis.findings) + 6
    gpus_at = roles_at + _LANE * len(evidence.roles)
    height = gpus_at + _LANE * len(gpus) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="100%" height="100%" fill="white"/><text x="{_LEFT}" y="20">{_title(axis)}</text>',
    ]
    rows = {track.name: gpus_at + _LANE * at for at, track in enumerate(gpus)}
    lanes = {(track.task, track.role): roles_at + _LANE * at for at, track in enumerate(evidence.roles)}
    for track in evidence.roles:
        parts += _role_lane(track, axis, lanes[track.task, track.role], limits)
    for gpu in gpus:
        parts += _gpu_lane(gpu, axis, rows[gpu.name], limits)
    for number, finding in enumerate(diagnosis.findings):
        parts += _mark(finding, axis, _TOP + _MARK * number, rows, lanes)
    more = len(evidence.gpus) - len(gpus)
    legend = "GPUs: darker is busier; red line: memory; roles: darker waits less; white: unknown"
    parts.append(
        f'<text x="{_LEFT}" y="{height - 12}">{legend}{f"; and {more} more GPUs" if more else ""}</text>'
    )
    return "\n".join([*parts, "</svg>\n"])


def _ends(evidence: Evidence, limits: Thresholds) -> tuple[float, float]:
    ends = [
        (float(track.start_s[0]), float(track.start_s[-1]) + length_s)
        for tracks, length_s in (
            (evidence.gpus, limits.window_s),
            (evidence.hosts, limits.window_s),
            (evidence.roles, limits.stretch_s),
        )
        for track in tracks
        if len(track.start_s)
    ]
    return min(began for began, _ in ends), max(ended for _, ended in ends)


def _title(axis: _Axis) -> str:
    if axis.began_s < _WALL_CLOCK_S:
        return f"{axis.length_s:,.0f} s"
    first, last = (
        f"{datetime.fromtimestamp(at_s, timezone.utc):%Y-%m-%d %H:%M:%S}"
        for at_s in (axis.began_s, axis.began_s + axis.length_s)
    )
    return f"{first} to {last} UTC, {axis.length_s:,.0f} s"


def _gpu_lane(gpu: GpuTrack, axis: _Axis, y: int, limits: Thresholds) -> Iterator[str]:
    busy = axis.bins(gpu.start_s, gpu.utilization_percent / 100, gpu.known_s, limits.window_s)
    yield from _heat(gpu.name, busy, y)
    held = axis.bins(gpu.start_s, gpu.used_mib / gpu.limit_mib, gpu.seconds, limits.window_s)
    points = [
        f"{_LEFT + (at + 0.5) * _WIDTH / _BINS:.1f},{y + _BAR * (1 - min(share, 1.0)):.1f}"
        for at, share in enumerate(held.tolist())
        if not math.isnan(share)
    ]
    if points:
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="#cc3311" stroke-width="0.8"/>'


def _role_lane(track: RoleTrack, axis: _Axis, y: int, limits: Thresholds) -> Iterator[str]:
    working = axis.bins(track.start_s, 1 - track.waiting, track.covered_s, limits.stretch_s)
    yield from _heat(track.name, working, y)


def _heat(name: str, shares: Floats, y: int) -> Iterator[str]:
    """Draw a lane of shares in five shades, neighbours of one shade as one bar."""
    yield f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>'
    yield (
        f'<rect x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_BAR}" fill="{_UNKNOWN}" '
        'stroke="#dddddd" stroke-width="0.5"/>'
    )
    shades = [None if math.isnan(share) else min(int(share * 5), 4) for share in shares.tolist()]
    wide = _WIDTH / _BINS
    for shade, group in groupby(enumerate(shades), key=lambda each: each[1]):
        places = [place for place, _ in group]
        if shade is not None:
            yield (
                f'<rect x="{_LEFT + places[0] * wide:.1f}" y="{y}" width="{len(places) * wide:.1f}" '
                f'height="{_BAR}" fill="{_HEAT[shade]}"/>'
            )


def _mark(
    finding: Finding,
    axis: _Axis,
    y: int,
    rows: dict[str, int],
    lanes: dict[tuple[str, str], int],
) -> Iterator[str]:
    """Draw when a finding was seen, and frame the lanes it is about."""
    x, colour = axis.x(finding.began_s), _LEVELS[finding.level.value]
    width = max(axis.x(finding.ended_s) - x, 2.0)
    yield f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end" fill="{colour}">{finding.code}</text>'
    said = escape(f"{finding.title}: {finding.evidence}")
    yield (
        f'<rect x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="9" fill="{colour}">'
        f"<title>{said}</title></rect>"
    )
    places = [rows[gpu] for gpu in finding.gpus if gpu in rows]
    own = lanes.get((finding.task or "", finding.role or ""))
    for place in places if own is None else [*places, own]:
        yield (
            f'<rect x="{x:.1f}" y="{place}" width="{width:.1f}" height="{_BAR}" fill="none" '
            f'stroke="{colour}" stroke-width="1.2"/>'
        )
