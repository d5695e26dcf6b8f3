"""Lengths, turns and tool calls of a task, as recorded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import msgspec
import numpy as np

from libra_plan.models.length_fit import LEAST_LENGTHS, fit_drift, fit_log_normal
from libra_plan.models.length_forecast import LEAST_HISTORY, law_mean_tokens, scaled
from libra_plan.models.lengths import FloatArray, sample_lengths
from libra_plan.planner.simulate.fit.evidence import (
    LEAST_STEPS,
    FitFindings,
    TaskSeen,
    TrajectorySeen,
    six_digits,
)
from libra_plan.planner.simulate.world import Drift, Tools, WorldTask
from libra_plan.profiles.schema_workload import LogNormal

__all__ = ["fit_work"]

_GROUP = 200  # lengths that are fitted with one mean, while it drifts
_FAR = 0.05  # Kolmogorov–Smirnov distance above which a law is called a poor one
_UNEVEN = 2.0  # and the spread of step means over what the law's own luck gives


def fit_work(task: WorldTask, seen: TaskSeen, found: FitFindings) -> WorldTask:
    """Fit samples of a step, prompts, responses with their drift, turns and tool calls."""
    if found.enough(f"{task.id}.samples", len(seen.samples), LEAST_STEPS, "steps tell theirs"):
        samples = max(1, round(float(np.median(seen.samples))))
        of, span = f"steps of {seen.source}", (float(min(seen.samples)), float(max(seen.samples)))
        how = "the median; it is from least to greatest, not an interval"
        found.add(f"{task.id}.samples", samples, len(seen.samples), of, how, span=span)
        task = msgspec.structs.replace(task, samples=samples)
    task = msgspec.structs.replace(task, responses=_responses(task, seen, found))
    task = msgspec.structs.replace(task, prompts=_prompts(task, seen, found))
    return _turns(task, seen, found)


def _responses(task: WorldTask, seen: TaskSeen, found: FitFindings) -> Drift:
    law, key = task.responses, f"{task.id}.responses"
    groups = _groups(seen.trajectories)
    count = sum(map(len, groups))
    if count >= LEAST_LENGTHS:
        law = _fitted_law(law, groups, key, found)
    else:
        why = f"{count} single lengths were recorded, {LEAST_LENGTHS} are the least: means tell no spread"
        found.keep(f"{key}.sigma", why)
        found.keep(f"{key}.max_tokens", "the cut is a setting of the framework")
    means = seen.responses or _means(seen.trajectories)
    if len(means) >= LEAST_HISTORY:
        return _drifting(law, means, task.samples, key, seen.source or "the trajectories", found)
    if count >= LEAST_LENGTHS:
        found.enough(f"{key}: no drift", len(means), LEAST_HISTORY, "steps tell of none")
    else:
        found.enough(f"{key}.first_mean_tokens", len(means), LEAST_HISTORY, "steps with a mean length")
    return law


def _groups(trajectories: Sequence[TrajectorySeen]) -> list[list[int]]:
    """Group lengths by steps that follow each other, some hundred in each; all together without steps."""
    if any(each.step is None for each in trajectories):
        return [[each.response_tokens for each in trajectories]] if trajectories else []
    groups: list[list[int]] = []
    ordered = sorted(trajectories, key=lambda each: each.step or 0)
    for _, step in itertools.groupby(ordered, key=lambda each: each.step):
        if not groups or len(groups[-1]) >= _GROUP:
            groups.append([])
        groups[-1] += [each.response_tokens for each in step]
    return groups


def _means(trajectories: Sequence[TrajectorySeen]) -> list[tuple[float, float]]:
    if not trajectories or any(each.step is None for each in trajectories):
        return []
    ordered = sorted(trajectories, key=lambda each: each.step or 0)
    first = ordered[0].step or 0
    return [
        (float((step or 0) - first), float(np.mean([each.response_tokens for each in own])))
        for step, own in itertools.groupby(ordered, key=lambda each: each.step)
    ]


def _fitted_law(law: Drift, groups: list[list[int]], key: str, found: FitFindings) -> Drift:
    fit = fit_log_normal(groups, law.max_tokens)
    parts = [f"p{q * 100:.0f} seen {seen:,.0f}, law {own:,.0f}" for q, seen, own in fit.quantiles]
    cut = f"log-normal, cut at {fit.law.max_tokens:,} tokens where {fit.at_cut:.1%} are"
    how = "; ".join((cut, f"shares of lengths are met within {fit.distance:.3f}", *parts))
    span, number = (fit.sigma_low, fit.sigma_high), fit.lengths
    found.add(f"{key}.sigma", fit.law.sigma, number, "trajectories", how, span=span)
    if len(groups) == 1 and fit.distance > _FAR:
        found.doubts.append(
            f"{key}: lengths are no good log-normal, shares are off by up to {fit.distance:.0%}"
        )
    if fit.at_cut > 0.01:
        found.doubts.append(
            f"{key}: {fit.at_cut:.1%} of the lengths are at the cut; the world has none there"
        )
    if fit.law.max_tokens > law.max_tokens:
        found.doubts.append(f"{key}: lengths pass the base's cut of {law.max_tokens:,} tokens: it was raised")
    return Drift(
        first_mean_tokens=six_digits(fit.mean_tokens),
        sigma=six_digits(fit.law.sigma),
        max_tokens=fit.law.max_tokens,
    )


def _drifting(
    law: Drift, means: list[tuple[float, float]], samples: int, key: str, source: str, found: FitFindings
) -> Drift:
    fit = fit_drift(means)
    luck = _spread_of_mean(law.law(fit.first_tokens), samples)
    how = f"means of steps are {fit.residual:.1%} about the line, of which the law's own luck is {luck:.1%}"
    of = f"steps of {source}"
    margin = 1.645 * fit.residual / math.sqrt(len(means))
    span = fit.first_tokens * math.exp(-2.0 * margin), fit.first_tokens * math.exp(2.0 * margin)
    found.add(f"{key}.first_mean_tokens", fit.first_tokens, len(means), of, how, unit="tokens", span=span)
    if fit.residual > _UNEVEN * luck and fit.residual > 0.02:
        found.doubts.append(f"{key}: step means vary more than a steady drift and luck explain: {how}")
    if fit.last_tokens is None:
        found.keep(
            f"{key}: no drift",
            f"noise explains last ÷ first of {fit.change_low:.3f} to {fit.change_high:.3f}",
        )
        return msgspec.structs.replace(
            law, first_mean_tokens=six_digits(fit.first_tokens), last_mean_tokens=None, steps=None
        )
    change = fit.last_tokens / fit.first_tokens
    how = "one factor every step; after the last recorded step the mean stays"
    found.add(
        f"{key}: last ÷ first mean", change, len(means), of, how, span=(fit.change_low, fit.change_high)
    )
    return msgspec.structs.replace(
        law,
        first_mean_tokens=six_digits(fit.first_tokens),
        last_mean_tokens=six_digits(fit.last_tokens),
        steps=fit.steps,
    )


def _spread_of_mean(law: LogNormal, samples: int) -> float:
    """Return the relative standard deviation of a step's mean length, from the law's quantiles."""
    tokens = sample_lengths(law, 2000).tokens.astype(float)
    return float(tokens.std() / tokens.mean() / math.sqrt(samples))


def _prompts(task: WorldTask, seen: TaskSeen, found: FitFindings) -> LogNormal:
    key = f"{task.id}.prompts"
    told = [each.prompt_tokens for each in seen.trajectories if each.prompt_tokens]
    if len(told) < LEAST_LENGTHS:
        return _prompts_of_means(task, seen, key, found)
    fit, count, of = fit_log_normal([told], task.prompts.max_tokens), len(told), "trajectories"
    how = f"log-normal, cut at {fit.law.max_tokens:,}; shares are met within {fit.distance:.3f}"
    span = fit.sigma_low, fit.sigma_high
    found.add(f"{key}.sigma", fit.law.sigma, count, of, how, span=span)
    found.add(f"{key}: mean", fit.mean_tokens, count, of, "their mean", unit="tokens")
    median, sigma = six_digits(fit.law.median_tokens), six_digits(fit.law.sigma)
    return LogNormal(median_tokens=median, sigma=sigma, max_tokens=fit.law.max_tokens)


def _prompts_of_means(task: WorldTask, seen: TaskSeen, key: str, found: FitFindings) -> LogNormal:
    """Move the base's law to the mean that whole sequences leave for prompts."""
    law = task.prompts
    if len(seen.wholes) >= LEAST_HISTORY and len(seen.responses) >= LEAST_HISTORY:
        mean = float(np.mean(seen.wholes)) - float(np.mean([mean for _, mean in seen.responses]))
        if mean >= 1.0:
            moved = scaled(law, mean / law_mean_tokens(law))
            assert isinstance(moved, LogNormal)
            count, of, how = len(seen.wholes), f"steps of {seen.source}", "whole sequences less responses"
            found.add(f"{key}: mean", mean, count, of, how, unit="tokens")
            found.keep(f"{key}.sigma", "single prompts were not recorded")
            return msgspec.structs.replace(moved, median_tokens=six_digits(moved.median_tokens))
    found.keep(key, "prompts were not recorded")
    return law


def _turns(task: WorldTask, seen: TaskSeen, found: FitFindings) -> WorldTask:
    turns = [each.turns for each in seen.trajectories if each.turns]
    calls = [each.tool_s for each in seen.trajectories if each.tool_s is not None]
    if found.enough(f"{task.id}.turns", len(turns), LEAST_LENGTHS, "trajectories tell turns"):
        mean = float(np.mean(turns))
        how = f"the mean {mean:.2f} (least {min(turns)}, greatest {max(turns)}); a world gives all as many"
        count = max(1, round(mean))
        found.add(f"{task.id}.turns", count, len(turns), "trajectories", how)
        task = msgspec.structs.replace(task, turns=count)
    every = np.array([seconds for own in calls for seconds in own if seconds > 0.0])
    if not found.enough(f"{task.id}.tools", len(every), LEAST_LENGTHS, "tool calls were recorded"):
        return task
    return msgspec.structs.replace(task, tools=_tools(task, every, len(calls), found))


def _tools(task: WorldTask, every: FloatArray, trajectories: int, found: FitFindings) -> Tools:
    """Return tool calls that wait as long as recorded on average, with the spread of single calls."""
    mean, sigma = float(every.sum()) / (trajectories * task.turns), float(np.log(every).std(ddof=1))
    error = 1.645 * float(every.std()) / math.sqrt(len(every)) * mean / float(every.mean())
    how = "seconds of all calls ÷ turns, since a world has one call after each turn"
    found.add(
        f"{task.id}.tools.mean_s",
        mean,
        len(every),
        "tool calls",
        how,
        unit="s",
        span=(mean - error, mean + error),
    )
    part = 1.645 * sigma / math.sqrt(2.0 * len(every))
    found.add(
        f"{task.id}.tools.sigma",
        sigma,
        len(every),
        "tool calls",
        "standard deviation of ln seconds",
        span=(sigma - part, sigma + part),
    )
    on_workers = task.tools.on_workers if task.tools is not None else False
    why = "a recording does not tell whether calls took a CPU worker each"
    found.keep(f"{task.id}.tools.on_workers {str(on_workers).lower()}", why)
    return Tools(mean_s=six_digits(mean), sigma=six_digits(sigma), on_workers=on_workers)
