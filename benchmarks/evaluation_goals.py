"""The goals that policies are held against on docs/evaluation.md: what is measured, and whether it is met."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean, median

from libra_plan.planner.simulate.figures import Figures, PairedRatio, paired
from libra_plan.profiles.counting import counted

__all__ = ["Goal", "goals", "ratios_of", "span"]

LEAST_SEEDS = 3
"""Fewer seeds leave an interval that says nothing: a goal is then open, whatever the mean."""


@dataclass(frozen=True)
class Goal:
    """A goal, what was measured, whether it is met (None: the results do not say), and in which worlds.

    `beyond`: the proven bound says that no policy can meet it in the hours that were run.
    """

    what: str
    measured: str
    met: bool | None
    worlds: frozenset[str] = frozenset()
    beyond: bool = False

    @property
    def verdict(self) -> str:
        """Say it in a word."""
        if self.beyond and not self.met:
            return "**missed**, and out of reach"
        return "open" if self.met is None else "met" if self.met else "**missed**"


def ratios_of(runs: Sequence[Figures], policy: str, over: str) -> dict[str, PairedRatio]:
    """Return the paired ratios of two policies in every world that has both."""
    return {each.world: each for each in paired(runs, policy, over)}


def span(each: PairedRatio, digits: int = 3) -> str:
    """Write a ratio with its interval."""
    interval = "" if each.low is None else f" ({each.low:.{digits}f} – {each.high:.{digits}f})"
    return f"{each.mean:.{digits}f}{interval}"


def goals(
    runs: Sequence[Figures], errors: Sequence[tuple[str, float]], cut: Collection[str] = ()
) -> list[Goal]:
    """Hold the results against every goal. `errors`: a world's task, and predicted ÷ simulated − 1.

    `cut` names the worlds that were not run for all of their hours: what hangs on them is open.
    """
    found = _all(runs, errors)
    return [replace(goal, met=None, beyond=False) if goal.worlds & set(cut) else goal for goal in found]


def _all(runs: Sequence[Figures], errors: Sequence[tuple[str, float]]) -> list[Goal]:
    return [
        *(_complementary(runs, over) for over in _splits(runs)),
        _at_least(
            runs,
            "drift-search-48",
            "best-static",
            1.63,
            "drifting agentic RL on 48 GPUs: ours ÷ best-static ≥ 1.63",
        ),
        _over_libra(runs),
        _of_clairvoyant(runs),
        _of_bound(runs),
        _at_least(runs, "identical-64", "best-static", 0.995, "identical tasks: ours ÷ best-static ≥ 0.995"),
        _model(errors),
        *_ablations(runs),
    ]


def _splits(runs: Sequence[Figures]) -> list[str]:
    """Name the splits that complementary tasks are held against: the equal one, and one as set by hand."""
    return ["equal", *(["uniform"] if any(run.policy == "uniform" for run in runs) else [])]


def _sure(found: PairedRatio, least: float) -> bool | None:
    return found.mean >= least if found.seeds >= LEAST_SEEDS else None


def _complementary(runs: Sequence[Figures], over: str) -> Goal:
    what = f"complementary tasks: ours ÷ {over} ≥ 3.0 in the best world"
    found = ratios_of(runs, "ours", over)
    if not found:
        return Goal(what, "not run", None)
    best = max(found.values(), key=lambda each: each.mean)
    means = sorted(each.mean for each in found.values())
    spread = f"{means[0]:.3f} to {means[-1]:.3f}, median {median(means):.3f}"
    most = {world: each for world in found if (each := _most(runs, world, over)) is not None}
    bounds = ", ".join(f"{world} {each:.2f}" for world, each in most.items())
    return Goal(
        what,
        f"{best.world}: {span(best)}; {counted(len(means), 'world')}: {spread}"
        + (f"; no policy can exceed {bounds}" if most else ""),
        _sure(best, 3.0),
        frozenset(found),
        beyond=len(most) == len(found) and max(most.values()) < 3.0,
    )


def _most(runs: Sequence[Figures], world: str, over: str) -> float | None:
    """Return what no policy exceeds over another, by the bound proven for each seed: their geometric mean."""
    shares = [run.of_bound for run in runs if (run.world, run.policy) == (world, over)]
    if not shares or any(share is None for share in shares):
        return None
    return geometric_mean([1.0 / share for share in shares if share])


def _at_least(runs: Sequence[Figures], world: str, over: str, least: float, what: str) -> Goal:
    found = ratios_of(runs, "ours", over).get(world)
    if found is None:
        return Goal(what, "not run", None)
    most = _most(runs, world, over)
    bound = "" if most is None else f"; no policy can exceed {most:.2f}"
    return Goal(
        what,
        f"{span(found)}, {counted(found.seeds, 'seed')}{bound}",
        _sure(found, least),
        frozenset({world}),
        beyond=most is not None and most < least,
    )


def _over_libra(runs: Sequence[Figures]) -> Goal:
    what = "ours ÷ Libra's rule: its interval above 1 in 4 of 5 worlds, and nowhere its mean below 1"
    found = ratios_of(runs, "ours", "libra")
    if not found:
        return Goal(what, "not run", None)
    above = [each.world for each in found.values() if each.low is not None and each.low > 1.0]
    told = "; ".join(f"{world} {span(each)}" for world, each in found.items())
    enough = min(each.seeds for each in found.values()) >= LEAST_SEEDS
    met = len(above) >= 0.8 * len(found) and all(each.mean >= 1.0 - 1e-9 for each in found.values())
    told = f"the interval is above 1 in {len(above)} of {len(found)}: {told}"
    return Goal(what, told, met if enough else None, frozenset(found))


def _of_clairvoyant(runs: Sequence[Figures]) -> Goal:
    what = "ours ≥ 95 % of the clairvoyant in every world"
    found = ratios_of(runs, "ours", "clairvoyant")
    if not found:
        return Goal(what, "not run", None)
    told = "; ".join(f"{world} {span(each)}" for world, each in found.items())
    enough = min(each.seeds for each in found.values()) >= LEAST_SEEDS
    met = all(each.mean >= 0.95 for each in found.values())
    return Goal(what, told, met if enough else None, frozenset(found))


def _of_bound(runs: Sequence[Figures]) -> Goal:
    what = "ours ≥ 95 % of the bound that no policy exceeds (proven, not tight)"
    shares: dict[str, list[float]] = {}
    for run in runs:
        if run.policy == "ours" and run.of_bound is not None:
            shares.setdefault(run.world, []).append(run.of_bound)
    if not shares:
        return Goal(what, "not run", None)
    told = "; ".join(
        f"{world} {sum(own) / len(own):.1%} (least {min(own):.1%})" for world, own in shares.items()
    )
    enough = min(map(len, shares.values())) >= LEAST_SEEDS
    met = all(sum(own) / len(own) >= 0.95 for own in shares.values())
    return Goal(what, told, met if enough else None, frozenset(shares))


def _model(errors: Sequence[tuple[str, float]]) -> Goal:
    what = "closed forms against the simulator: step times of all tasks"
    if not errors:
        return Goal(what, "not run", None)
    sizes = sorted(abs(error) for _, error in errors)
    worst = max(errors, key=lambda each: abs(each[1]))
    told = f"median {median(sizes):.1%}, worst {worst[1]:+.1%} ({worst[0]}) over {len(sizes)} tasks"
    return Goal(what, f"{told}; no limit was set, see below", None)


def _ablations(runs: Sequence[Figures]) -> list[Goal]:
    """Say of every part of the loop what it brings, with its sign; a part that costs is one missed."""
    found = []
    for policy in dict.fromkeys(run.policy for run in runs if run.policy.startswith("ours-no-")):
        own = ratios_of(runs, "ours", policy)
        told = "; ".join(f"{world} {each.mean - 1:+.1%}{_sign(each)}" for world, each in own.items())
        enough = min(each.seeds for each in own.values()) >= LEAST_SEEDS
        met = any(each.low is not None and each.low > 1.0 for each in own.values()) and not any(
            each.high is not None and each.high < 1.0 for each in own.values()
        )
        what = f"{policy.removeprefix('ours-no-')} pays somewhere and costs nowhere: ours ÷ {policy}"
        found.append(Goal(what, told, met if enough else None, frozenset(own)))
    return found


def _sign(each: PairedRatio) -> str:
    if each.low is None or each.high is None:
        return ""
    return " (+)" if each.low > 1.0 else " (−)" if each.high < 1.0 else " (±)"
