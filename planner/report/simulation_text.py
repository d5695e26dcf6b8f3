"""Tables of `simulate`: figures of policies over seeds, differences, ratios, and the result of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from libra_plan.planner.report.text_table import PLAIN, Page, table_text
from libra_plan.planner.simulate.figures import FigureSummary, PairedRatio, SeedMean
from libra_plan.planner.simulate.fit.fit import FittedWorld
from libra_plan.planner.simulate.simulate import Simulation

__all__ = ["fitted_text", "simulation_text"]

_FORMS = {
    "weighted": ("× fair share", 1.0, 3),
    "of_bound": ("of the proven bound, %", 100.0, 1),
    "fairness": ("worst task, × fair share", 1.0, 3),
    "tokens_per_s": ("tokens /s", 1.0, 0),
    "samples_per_s": ("samples /s", 1.0, 2),
    "jct_mean_s": ("JCT mean, h", 1 / 3600, 2),
    "jct_p99_s": ("JCT p99, h", 1 / 3600, 2),
    "makespan_s": ("makespan, h", 1 / 3600, 2),
    "idle": ("idle, %", 100.0, 1),
    "bubbles": ("bubbles, %", 100.0, 1),
    "moves_per_hour": ("moves /h", 1.0, 2),
    "lost_gpu_hours": ("lost to switching, GPU h", 1.0, 1),
    "decide_p50_s": ("decision p50, ms", 1000.0, 1),
    "decide_p99_s": ("decision p99, ms", 1000.0, 1),
}
"""Name, factor and digits of each figure, in the order of the table; then come the rates of tasks."""
_ABREAST = 5
"""Policies side by side in one table."""


def simulation_text(found: Simulation, page: Page = PLAIN) -> str:
    """Return a table per world, one of the changes where there are several seeds, and the ratios."""
    parts: list[str] = []
    for world in dict.fromkeys(each.world for each in found.summaries):
        own = [each for each in found.summaries if each.world == world]
        seeds = max(each.value.seeds for each in own)
        told = f"mean of {seeds} seeds ± half of its 95 % interval" if seeds > 1 else "one seed: no intervals"
        parts += _blocks(f"{world}: {told}", own, lambda each: each.value, "", page)
        if seeds > 1 and any(each.change for each in own):
            title = f"{world}: difference to {found.over}, seed by seed"
            others = [each for each in own if each.policy != found.over]
            parts += _blocks(title, others, lambda each: each.change, "+", page)
    if found.ratios:
        columns = ["world", "policy", "over", "ratio", "95 % interval", "seeds"]
        table = table_text(columns, [_ratio(each) for each in found.ratios], (3, 4, 5), page)
        parts.append(f"weighted throughput, paired by seed (geometric mean)\n{table}")
    return "\n\n".join(parts)


def _blocks(
    title: str,
    own: Sequence[FigureSummary],
    value_of: Callable[[FigureSummary], SeedMean | None],
    sign: str,
    page: Page,
) -> Iterator[str]:
    policies = list(dict.fromkeys(each.policy for each in own))
    tasks = dict.fromkeys(each.figure for each in own if "." in each.figure)
    names = {figure: form[0] for figure, form in _FORMS.items()}
    names |= {figure: f"{figure.partition('.')[2]}, × fair share" for figure in tasks}
    cells = {(each.figure, each.policy): _cell(each.figure, value_of(each), sign) for each in own}
    for first in range(0, len(policies), _ABREAST):
        abreast = policies[first : first + _ABREAST]
        rows = [
            [name, *(cells.get((figure, policy), "–") for policy in abreast)]
            for figure, name in names.items()
            if any((figure, policy) in cells for policy in policies)
        ]
        table = table_text(["", *abreast], rows, range(1, len(abreast) + 1), page)
        yield f"{title}\n{table}"


def _cell(figure: str, value: SeedMean | None, sign: str) -> str:
    if value is None:
        return "–"
    _, factor, digits = _FORMS.get(figure, ("", 1.0, 3))
    text = f"{value.mean * factor:{sign},.{digits}f}"
    return text if value.high is None else f"{text} ± {(value.high - value.mean) * factor:,.{digits}f}"


def _ratio(each: PairedRatio) -> list[str]:
    span = "–" if each.low is None else f"{each.low:.3f} – {each.high:.3f}"
    return [each.world, each.policy, each.over, f"{each.mean:.3f}", span, str(each.seeds)]


def fitted_text(fit: FittedWorld, page: Page = PLAIN) -> str:
    """Return the table of what was fitted."""
    rows = [
        [each.key, f"{each.value:.4g}", each.unit,
         "–" if each.low is None else f"{each.low:.4g} – {each.high:.4g}", f"{each.samples:,}", each.of]
        for each in fit.figures
    ]  # fmt: skip
    return table_text(["fitted", "value", "unit", "90 %", "from", "of"], rows, (1, 3, 4), page)
