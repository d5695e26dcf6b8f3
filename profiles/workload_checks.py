"""Check what types cannot say about a workload file; see `role_checks` for a role on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from libra_plan.errors import WorkloadError
from libra_plan.profiles import role_checks, sharing_checks
from libra_plan.profiles.document import Document
from libra_plan.profiles.schema import (
    CouplingSpec,
    Distribution,
    Fixed,
    Histogram,
    LogNormal,
    ProfileFile,
    TaskSpec,
    Trace,
    WorkloadFile,
)
from libra_plan.profiles.traces import read_trace_with_digest

__all__ = ["MOST_GENERATED", "check", "longest_tokens"]

MOST_GENERATED = 2**17
"""Samples of a step that generates: each is followed through the engine's queue."""


def check(
    workload: WorkloadFile,
    document: Document,
    profiles: Mapping[str, ProfileFile] | None,
    elsewhere: Sequence[str] = (),
) -> dict[str, str]:
    """Refuse a workload that contradicts itself or its profiles; give the digests of its traces.

    `elsewhere` names profiles that could have been named, beside those given.
    """
    if not workload.tasks:
        raise WorkloadError("the workload has no tasks", way_out="add one", where=document.where("tasks"))
    digests: dict[str, str] = {}
    folder = Path(document.path).parent
    role_checks.unique([task.id for task in workload.tasks], "tasks", "task", document)
    for position, task in enumerate(workload.tasks):
        if profiles is not None:
            for number, role in enumerate(task.roles):
                key = f"tasks[{position}].roles[{number}]"
                role_checks.require_known(role, key, document, profiles, elsewhere)
        _check_task(task, f"tasks[{position}]", document, profiles, folder, digests)
        _check_team(task, workload, f"tasks[{position}].team", document)
    _check_aging(workload, document)
    sharing_checks.check(workload, document)
    return digests


def _check_team(task: TaskSpec, workload: WorkloadFile, key: str, document: Document) -> None:
    """Refuse a team without a quota: it would be one that may only borrow, by a slip of the pen."""
    if task.team is not None and task.team not in workload.quotas:
        raise WorkloadError(
            f"task `{task.id}` is of a team that has no quota",
            got=task.team,
            allowed=", ".join(workload.quotas) or "none: the workload has no `quotas`",
            way_out="give the team a quota; `gpus: 0` for one that only borrows",
            where=document.where(key),
        )


def _check_aging(workload: WorkloadFile, document: Document) -> None:
    for position, task in enumerate(workload.tasks):
        if task.waited_s and workload.aging_s is None:
            raise WorkloadError(
                f"task `{task.id}` has waited, but the workload does not say what that counts",
                got=f"waited_s {task.waited_s:g}",
                way_out="state `aging_s`: after so many seconds a queued task counts twice",
                where=document.where(f"tasks[{position}].waited_s"),
            )


def _check_task(
    task: TaskSpec,
    key: str,
    document: Document,
    profiles: Mapping[str, ProfileFile] | None,
    folder: Path,
    digests: dict[str, str],
) -> None:
    if not task.roles:
        raise WorkloadError(f"task `{task.id}` has no roles", where=document.where(f"{key}.roles"))
    if all(role.kind == "env" for role in task.roles):
        way_out = "add a role that trains, generates or scores"
        raise WorkloadError(
            f"task `{task.id}` has no GPU role", way_out=way_out, where=document.where(f"{key}.roles")
        )
    if not task.arrangements:
        raise WorkloadError(
            f"task `{task.id}` allows no arrangement",
            allowed="colocated, separate, hybrid",
            where=document.where(f"{key}.arrangements"),
        )
    _check_range(task.min_gpus, task.max_gpus, key, document)
    _check_coupling(task.coupling, f"{key}.coupling", document)
    longest = _check_work(task, key, document, folder, digests)
    role_checks.unique([role.id for role in task.roles], f"{key}.roles", "role", document)
    for position, role in enumerate(task.roles):
        role_checks.check(role, f"{key}.roles[{position}]", document, profiles, longest)
        if role.verdict_tokens is not None:
            verdicts_key = f"{key}.roles[{position}].verdict_tokens"
            _check_lengths(role.verdict_tokens, verdicts_key, document, folder, digests)


def _check_work(task: TaskSpec, key: str, document: Document, folder: Path, digests: dict[str, str]) -> int:
    """Check the lengths and counts of a step; give the tokens of the longest sequence."""
    work = task.work_per_step
    longest = _check_lengths(
        work.prompt_tokens, f"{key}.work_per_step.prompt_tokens", document, folder, digests
    )
    if work.response_tokens is not None:
        response_key = f"{key}.work_per_step.response_tokens"
        longest += _check_lengths(work.response_tokens, response_key, document, folder, digests)
        if work.samples > MOST_GENERATED:
            raise WorkloadError(
                f"task `{task.id}` generates more samples in a step than can be priced one by one",
                got=work.samples,
                allowed=f"at most {MOST_GENERATED}",
                way_out="plan a part of the step: the lengths are drawn from the same law",
                where=document.where(f"{key}.work_per_step.samples"),
            )
    elif work.history_tokens:
        raise WorkloadError(
            f"task `{task.id}` has a history of response lengths but no `response_tokens`",
            way_out="state how long the responses are now",
            where=document.where(f"{key}.work_per_step.history_tokens"),
        )
    elif any(role.kind == "rollout" for role in task.roles):
        raise WorkloadError(
            f"task `{task.id}` has a rollout role but no `response_tokens`",
            way_out="state how long the generated responses are",
            where=document.where(f"{key}.work_per_step"),
        )
    return longest


def _check_range(low: int, high: int | None, key: str, document: Document) -> None:
    if high is not None and low > high:
        raise WorkloadError(
            "`min_gpus` is above `max_gpus`",
            got=f"{low} > {high}",
            where=document.where(f"{key}.min_gpus"),
        )


def _check_coupling(coupling: CouplingSpec, key: str, document: Document) -> None:
    staleness = coupling.staleness_steps
    if coupling.kind == "async" and staleness < 1:
        raise WorkloadError(
            "async coupling needs a staleness bound",
            got=f"staleness_steps {staleness}",
            allowed="1 or more",
            way_out="state how many policy versions old a sample may be, or use sync",
            where=document.where(f"{key}.staleness_steps"),
        )
    if coupling.kind != "async" and staleness != 0:
        raise WorkloadError(
            f"{coupling.kind} coupling has no staleness",
            got=f"staleness_steps {staleness}",
            allowed="0",
            way_out="leave the key out, or use async",
            where=document.where(f"{key}.staleness_steps"),
        )
    if coupling.kind != "async" and coupling.rollouts != "stream":
        raise WorkloadError(
            f"{coupling.kind} coupling always generates batches",
            got=f"rollouts {coupling.rollouts}",
            allowed="nothing",
            way_out="leave the key out, or use async",
            where=document.where(f"{key}.rollouts"),
        )
    if (coupling.kind == "pipelined") != (coupling.groups is not None):
        raise WorkloadError(
            "pipelined coupling needs `groups`"
            if coupling.groups is None
            else "only pipelined coupling has `groups`",
            got=f"kind {coupling.kind}",
            way_out="state the number of micro-groups of a step"
            if coupling.groups is None
            else "leave it out",
            where=document.where(f"{key}.groups"),
        )


def longest_tokens(lengths: Distribution, trace: tuple[int, ...] = ()) -> int:
    """Give the longest length a distribution can yield, tokens; a trace is given with its lengths."""
    if isinstance(lengths, Fixed):
        return lengths.tokens
    if isinstance(lengths, LogNormal):
        return lengths.max_tokens
    if isinstance(lengths, Histogram):
        last = max(index for index, count in enumerate(lengths.counts) if count > 0)
        return lengths.edges_tokens[last + 1]
    return max(trace)


def _check_lengths(
    lengths: Distribution, key: str, document: Document, folder: Path, digests: dict[str, str]
) -> int:
    """Check one distribution; give its longest length, tokens."""
    if isinstance(lengths, Trace):
        trace, digests[lengths.file] = read_trace_with_digest(folder / lengths.file)
        return longest_tokens(lengths, trace)
    if isinstance(lengths, LogNormal) and lengths.median_tokens > lengths.max_tokens:
        raise WorkloadError(
            "`median_tokens` is above `max_tokens`",
            got=f"{lengths.median_tokens:g} > {lengths.max_tokens}",
            where=document.where(f"{key}.median_tokens"),
        )
    if isinstance(lengths, Histogram):
        _check_histogram(lengths, key, document)
    return longest_tokens(lengths)


def _check_histogram(lengths: Histogram, key: str, document: Document) -> None:
    edges, counts = lengths.edges_tokens, lengths.counts
    if len(edges) != len(counts) + 1 or not counts:
        raise WorkloadError(
            "a histogram has one more edge than counts, and at least one count",
            got=f"{len(edges)} edges and {len(counts)} counts",
            where=document.where(f"{key}.edges_tokens"),
        )
    for position in range(1, len(edges)):
        if edges[position] <= edges[position - 1]:
            raise WorkloadError(
                "histogram edges must ascend",
                got=f"{edges[position]} after {edges[position - 1]}",
                where=document.where(f"{key}.edges_tokens[{position}]"),
            )
    if sum(counts) <= 0:
        raise WorkloadError("the histogram counts nothing", where=document.where(f"{key}.counts"))
