"""Draw predicted against measured values of checked profiles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from libra_plan.errors import InputError
from libra_plan.models.curves.errors import LeftOut, ProfileCheck

__all__ = ["FORMATS", "plot_checks"]

FORMATS = (".png", ".svg")
_QUANTITIES = (("time_s", "time, s"), ("memory_mib", "peak memory, MiB"))
_PHASES = {"decode": "o", "serve": "s", "score": "^", "train": "D"}
_BAND = 0.05


def plot_checks(checks: Sequence[ProfileCheck], path: Path) -> None:
    """Write a picture: one panel a quantity, one mark a point that was predicted without its group."""
    if path.suffix.lower() not in FORMATS:
        raise InputError("unknown kind of picture", got=path.name, allowed=", ".join(FORMATS))
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError(
            "a plot needs matplotlib",
            got="no matplotlib in this environment",
            allowed="the package matplotlib",
            way_out="pip install '.[plot]' from a checkout, or pip install matplotlib",
        ) from None
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (quantity, title) in zip(figure.subplots(1, len(_QUANTITIES)), _QUANTITIES, strict=True):
        _panel(axes, checks, quantity, title)
    # no date in the file: the same fits give the same bytes
    metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
    with matplotlib.rc_context({"svg.hashsalt": "libra-plan"}):
        figure.savefig(path, metadata=metadata)


def _panel(axes: object, checks: Sequence[ProfileCheck], quantity: str, title: str) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    axes.set(xscale="log", yscale="log", xlabel=f"measured {title}", ylabel="predicted without its group")
    every: list[LeftOut] = []
    for phase, marker in _PHASES.items():
        points = [p for check in checks if check.phase == phase for p in check.left_out]
        points = [point for point in points if point.quantity == quantity]
        every += points
        if points:
            measured, predicted = [p.measured for p in points], [p.predicted for p in points]
            axes.scatter(measured, predicted, s=14, marker=marker, label=phase, alpha=0.7, linewidths=0)
    if not every:
        axes.text(0.5, 0.5, "nothing to show", ha="center", transform=axes.transAxes)
        return
    ends = [min(p.measured for p in every), max(p.measured for p in every)]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    low, high = ([end * factor for end in ends] for factor in (1 - _BAND, 1 + _BAND))
    axes.fill_between(ends, low, high, color="grey", alpha=0.2, label=f"±{_BAND:.0%}")
    axes.legend()
