"""A picture of a recording as SVG: findings, roles at work, and each GPU's utilization and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from itertools import groupby

import numpy as np

from libra_plan.planner.doctor import Diagnosis, Evidence, Finding, Thresholds
from libra_plan.planner.doctor.tracks import Floats, GpuTrack, RoleTrack
from libra_plan.planner.report.svg import Svg

__all__ = ["timeline_svg"]

_HEAT = ("#eef3f8", "#c6d8ea", "#94b8d9", "#5f93c4", "#34689c")
_LEVELS = {"note": "#bbbbbb", "warning": "#ee8866", "critical": "#cc3311"}
_LANE, _BAR, _MARK, _LEFT, _WIDTH, _TOP = 22, 18, 18, 190, 860, 34
_BINS = 430
_MOST_LANES = 64
_WALL_CLOCK_S = 1e9


class _Axis:
    """Maps times to pixels and to bins."""

    def __init__(self, began_s: float, ended_s: float) -> None:
        self.began_s, self.length_s = began_s, max(ended_s - began_s, 1.0)

    def x(self, at_s: float) -> float:
        """Return the x coordinate of a time, pixels."""
        return _LEFT + _WIDTH * min(max((at_s - self.began_s) / self.length_s, 0.0), 1.0)

    def bins(self, start_s: Floats, values: Floats, seconds: Floats, window_s: float) -> Floats:
        """Return the mean of known values in each bin, weighted by time; NaN where nothing is known.

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
    axis = _Axis(*_ends(evidence, limits))
    gpus = evidence.gpus[:_MOST_LANES]
    roles_at = _TOP + _MARK * len(diagnosis.findings) + 6
    gpus_at = roles_at + _LANE * len(evidence.roles)
    height = gpus_at + _LANE * len(gpus) + 40
    svg = Svg(_LEFT + _WIDTH + 20, height)
    svg.words(_LEFT, 20, _title(axis))
    rows = {track.name: gpus_at + _LANE * at for at, track in enumerate(gpus)}
    lanes = {(track.task, track.role): roles_at + _LANE * at for at, track in enumerate(evidence.roles)}
    for track in evidence.roles:
        _role_lane(svg, track, axis, lanes[track.task, track.role], limits)
    for gpu in gpus:
        _gpu_lane(svg, gpu, axis, rows[gpu.name], limits)
    for number, finding in enumerate(diagnosis.findings):
        _mark(svg, finding, axis, _TOP + _MARK * number, rows, lanes)
    more = len(evidence.gpus) - len(gpus)
    legend = "GPUs: darker is busier; red line: memory; roles: darker waits less; white: unknown"
    svg.words(_LEFT, height - 12, f"{legend}{f'; and {more} more GPUs' if more else ''}")
    return svg.text


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


def _gpu_lane(svg: Svg, gpu: GpuTrack, axis: _Axis, y: int, limits: Thresholds) -> None:
    busy = axis.bins(gpu.start_s, gpu.utilization_percent / 100, gpu.known_s, limits.window_s)
    _heat(svg, gpu.name, busy, y)
    held = axis.bins(gpu.start_s, gpu.used_mib / gpu.limit_mib, gpu.seconds, limits.window_s)
    points = [
        (_LEFT + (at + 0.5) * _WIDTH / _BINS, y + _BAR * (1 - min(share, 1.0)))
        for at, share in enumerate(held.tolist())
        if not math.isnan(share)
    ]
    if points:
        svg.line(points, stroke="#cc3311", stroke_width=0.8)


def _role_lane(svg: Svg, track: RoleTrack, axis: _Axis, y: int, limits: Thresholds) -> None:
    working = axis.bins(track.start_s, 1 - track.waiting, track.covered_s, limits.stretch_s)
    _heat(svg, track.name, working, y)


def _heat(svg: Svg, name: str, shares: Floats, y: int) -> None:
    """Draw a lane of shares in five shades, neighbours of one shade as one bar."""
    svg.words(_LEFT - 8, y + 13, name, text_anchor="end")
    svg.rect(_LEFT, y, _WIDTH, _BAR, fill="#ffffff", stroke="#dddddd", stroke_width=0.5)
    shades = [None if math.isnan(share) else min(int(share * 5), 4) for share in shares.tolist()]
    wide = _WIDTH / _BINS
    for shade, group in groupby(enumerate(shades), key=lambda each: each[1]):
        places = [place for place, _ in group]
        if shade is not None:
            svg.rect(_LEFT + places[0] * wide, y, len(places) * wide, _BAR, fill=_HEAT[shade])


def _mark(
    svg: Svg,
    finding: Finding,
    axis: _Axis,
    y: int,
    rows: Mapping[str, int],
    lanes: Mapping[tuple[str, str], int],
) -> None:
    """Draw when a finding was seen, and a frame around the lanes that it concerns."""
    x, colour = axis.x(finding.began_s), _LEVELS[finding.level.value]
    width = max(axis.x(finding.ended_s) - x, 2.0)
    svg.words(_LEFT - 8, y + 11, finding.code, text_anchor="end", fill=colour)
    svg.rect(x, y + 3, width, 9, fill=colour, title=f"{finding.title}: {finding.evidence}")
    places = [rows[gpu] for gpu in finding.gpus if gpu in rows]
    own = lanes.get((finding.task or "", finding.role or ""))
    for place in places if own is None else [*places, own]:
        svg.rect(x, place, width, _BAR, fill="none", stroke=colour, stroke_width=1.2)
