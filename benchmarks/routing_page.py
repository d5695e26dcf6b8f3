"""Write docs/routing.md from the results of the study: tables by the program, prose in routing/page.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from routing_cases import COSTS, WORLDS, world_of
from routing_kinds import what_can_be_told
from scipy.stats import t as student

TEXT = Path(__file__).parent / "routing" / "page.md"
MIXES = ("planned", "libra")
BASE = "emptiest"
Row = dict[str, Any]


def page(results: dict[str, Any]) -> str:
    """Fill the tables into the text."""
    rows = [row for row in results["rows"] if row["telling"] is None]
    told = [row for row in results["rows"] if row["telling"] is not None]
    text = TEXT.read_text(encoding="utf-8")
    text = text.replace("](../../docs/", "](").replace(
        "](../../", "](../"
    )  # links hold in the text and the page
    seeds = len(rows[0]["tokens_per_s"])
    text = text.replace("{seeds}", str(seeds)).replace("{kinds}", kinds()).replace("{uniform}", uniform(rows))
    for mode in ("batch", "stream"):
        own = [row for row in rows if row["mode"] == mode]
        text = text.replace(f"{{{mode}:mixes}}", against_uniform(own))
        text = text.replace(f"{{{mode}:rules}}", against_emptiest(own))
    text = text.replace("{right}", routed(rows)).replace("{promised}", promised(rows, results["promised"]))
    return text.replace("{told}", telling(rows, told))


def ratio(one: Sequence[float], other: Sequence[float]) -> str:
    """Return the geometric mean of paired ratios with Student's 95 % interval."""
    logs = [math.log(a / b) for a, b in zip(one, other, strict=True)]
    half = float(student.ppf(0.975, len(logs) - 1)) * stdev(logs) / math.sqrt(len(logs))
    middle = mean(logs)
    return f"{math.exp(middle):.2f} ({math.exp(middle - half):.2f}–{math.exp(middle + half):.2f})"


def groups(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """List worlds and costs in order."""
    return list(dict.fromkeys((row["world"], row["costs"]) for row in rows))


def of(rows: Iterable[Row], **keys: str) -> Row:
    """Find the one row with these values."""
    (found,) = [row for row in rows if all(row[key] == value for key, value in keys.items())]
    return found


def best_uniform(rows: Sequence[Row], world: str, costs: str, mode: str) -> Row:
    """Find the size that does most, when all replicas are alike and nobody routes."""
    able = [
        row
        for row in rows
        if (row["world"], row["costs"], row["mode"], row["rule"]) == (world, costs, mode, BASE)
        and row["mix"].startswith("all")
    ]
    return max(able, key=lambda row: mean(row["tokens_per_s"]))


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Write a table."""
    return "\n".join(
        ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        + ["| " + " | ".join(line) + " |" for line in lines]
    )


def kinds() -> str:
    """Return how often the best guess of a trajectory's kind is right, by the law of each world."""

    def line(name: str) -> list[str]:
        (task,) = world_of(name, COSTS[0]).tasks
        assert task.outcomes is not None
        law = task.responses.law(task.responses.mean_at(0))
        return [name, *(f"{share:.1%}" for share in what_can_be_told(law, task.outcomes, 3))]

    return table(("world", "prompt alone", "1 return", "2 returns", "3 returns"), map(line, WORLDS))


def uniform(rows: Sequence[Row]) -> str:
    """Return tokens per second of replicas that are all alike."""
    sizes = [f"all tp{size}" for size in (1, 2, 4, 8)]

    def line(world: str, costs: str, mode: str) -> list[str]:
        own = [of(rows, world=world, costs=costs, mode=mode, mix=size, rule=BASE) for size in sizes]
        cells = [f"{mean(row['tokens_per_s']):,.0f}" for row in own]
        return [world, costs, mode, *cells]

    head = ("world", "costs", "rollout", *sizes)
    modes = dict.fromkeys((row["mode"], row["world"], row["costs"]) for row in rows)
    return table(head, (line(world, costs, mode) for mode, world, costs in modes))


def _rules(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["rule"] for row in rows if row["mix"] in MIXES))


def _ratios(rows: Sequence[Row], rules: Sequence[str], over: Callable[[Row], Row]) -> str:
    lines = []
    for world, costs in groups(rows):
        for mix in MIXES:
            own = {rule: of(rows, world=world, costs=costs, mix=mix, rule=rule) for rule in rules}
            cells = [ratio(own[rule]["tokens_per_s"], over(own[rule])["tokens_per_s"]) for rule in rules]
            lines.append([f"{world}, {costs}", f"{mix}: {own[rules[0]]['form']}", *cells])
    return table(("world", "mix", *rules), lines)


def against_uniform(rows: Sequence[Row]) -> str:
    """Compare every rule on a mix with the best size alone."""
    return _ratios(
        rows, _rules(rows), lambda row: best_uniform(rows, row["world"], row["costs"], row["mode"])
    )


def against_emptiest(rows: Sequence[Row]) -> str:
    """Compare every rule with taking the emptiest replica of the same mix."""
    rules = [rule for rule in _rules(rows) if rule != BASE]
    keys = ("world", "costs", "mode", "mix")
    return _ratios(rows, rules, lambda row: of(rows, rule=BASE, **{key: row[key] for key in keys}))


def routed(rows: Sequence[Row]) -> str:
    """Return how many trajectories ended in the bucket of their length, and how many tokens moved."""
    rules = [rule for rule in _rules(rows) if rule not in (BASE, "oracle")]
    lines = []
    for world, costs in groups(rows):
        for mix in MIXES:
            own = [of(rows, world=world, costs=costs, mode="batch", mix=mix, rule=rule) for rule in rules]
            cells = [f"{mean(row['right']):.0%}, {mean(row['moved']):.1%}" for row in own]
            lines.append([f"{world}, {costs}", mix, *cells])
    return table(("world", "mix", *rules), lines)


def promised(rows: Sequence[Row], promises: Sequence[Row]) -> str:
    """Compare what the planner promises of its mix with what rules reach on it."""
    lines = []
    for each in promises:
        keys = {"world": each["world"], "costs": each["costs"], "mode": "batch"}
        best = best_uniform(rows, each["world"], each["costs"], "batch")
        own = [row for row in rows if row["mix"] == "planned" and all(row[k] == v for k, v in keys.items())]
        knowing = mean(of(own, rule="oracle")["step_s"])
        ruled = min((row for row in own if row["rule"] != "oracle"), key=lambda row: mean(row["step_s"]))
        lines.append([
            f"{each['world']}, {each['costs']}", f"{each['uniform_s']:.0f}", f"{each['known_s']:.0f}",
            f"{each['ranked_s']:.0f}", f"{knowing:.0f}", f"{mean(ruled['step_s']):.0f} ({ruled['rule']})",
            f"{mean(best['step_s']):.0f} ({best['mix']})",
        ])  # fmt: skip
    head = ("world", "promised, best size, dealt", "promised, mix, lengths known")
    head += ("promised, mix, ranked by prompt", "simulated, oracle", "simulated, best rule")
    return table((*head, "simulated, best size"), lines)


def telling(rows: Sequence[Row], told: Sequence[Row]) -> str:
    """Compare rules where tools tell nothing, what was published, and all, with the emptiest replica."""
    rules = list(dict.fromkeys(row["rule"] for row in told))
    levels = sorted({row["telling"] for row in told})
    lines = []
    for world, costs in groups(told):
        for mix in MIXES:
            base = of(rows, world=world, costs=costs, mode="batch", mix=mix, rule=BASE)
            for rule in rules:
                keys = {"world": world, "costs": costs, "mix": mix, "rule": rule}
                own = [of(told, telling=level, **keys) for level in levels]
                cells = [own[0], of(rows, mode="batch", **keys), own[-1]]
                shown = [ratio(row["tokens_per_s"], base["tokens_per_s"]) for row in cells]
                lines.append([f"{world}, {costs}", mix, rule, *shown])
    return table(("world", "mix", "rule", "tell nothing", "as published", "tell all"), lines)
