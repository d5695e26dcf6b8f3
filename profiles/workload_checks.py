"""Check what types cannot say about a workload file; see `role_checks` for a role on its own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from libra_plan.errors import WorkloadError
from libra_plan.profiles.document import Document
from libra_plan.profiles.place import Place
from libra_plan.profiles.role_checks import check_profile_names, check_role
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
from libra_plan.profiles.sharing_checks import check_sharing
from libra_plan.profiles.traces import read_trace_with_digest

__all__ = ["MOST_GENERATED", "check_workload", "longest_tokens"]

MOST_GENERATED = 2**17
"""Samples of a step that generates: each is followed through the engine's queue."""


def check_workload(
    workload: WorkloadFile,
    document: Document,
    profiles: Mapping[str, ProfileFile] | None,
    elsewhere: Sequence[str] = (),
) -> dict[str, str]:
    """Refuse a workload that contradicts itself or its profiles; return the digests of its traces.

    `elsewhere` names profiles that could have been named, beside those given.
    """
    place = Place(document, WorkloadError)
    place.refuse_if(not workload.tasks, "the workload has no tasks", "tasks", way_out="add one")
    place.at("tasks").require_unique([task.id for task in workload.tasks], "task")
    lengths = _Lengths(Path(document.path).parent, {})
    for position, task in enumerate(workload.tasks):
        here = place.at(f"tasks[{position}]")
        if profiles is not None:
            for number, role in enumerate(task.roles):
                check_profile_names(role, here.at(f"roles[{number}]"), profiles, elsewhere)
        _check_task(task, here, profiles, lengths)
        _check_queue(task, here, workload)
    check_sharing(workload, place)
    return lengths.digests


def longest_tokens(lengths: Distribution, trace: tuple[int, ...] = ()) -> int:
    """Return the longest length a distribution can yield, tokens; a trace is given with its lengths."""
    if isinstance(lengths, Fixed):
        return lengths.tokens
    if isinstance(lengths, LogNormal):
        return lengths.max_tokens
    if isinstance(lengths, Histogram):
        last = max(index for index, count in enumerate(lengths.counts) if count > 0)
        return lengths.edges_tokens[last + 1]
    return max(trace)


def _check_queue(task: TaskSpec, place: Place, workload: WorkloadFile) -> None:
    """Refuse a team without a quota, which would only borrow, and waiting that counts nothing."""
    place.refuse_if(
        task.team is not None and task.team not in workload.quotas,
        f"task `{task.id}` is of a team that has no quota",
        "team",
        got=task.team,
        allowed=", ".join(workload.quotas) or "none: the workload has no `quotas`",
        way_out="give the team a quota; `gpus: 0` for one that only borrows",
    )
    place.refuse_if(
        task.waited_s > 0 and workload.aging_s is None,
        f"task `{task.id}` has waited, but the workload does not say what that counts",
        "waited_s",
        got=f"waited_s {task.waited_s:g}",
        way_out="state `aging_s`: after so many seconds a queued task counts twice",
    )


def _check_task(
    task: TaskSpec, place: Place, profiles: Mapping[str, ProfileFile] | None, lengths: _Lengths
) -> None:
    place.refuse_if(not task.roles, f"task `{task.id}` has no roles", "roles")
    place.refuse_if(
        all(role.kind == "env" for role in task.roles),
        f"task `{task.id}` has no GPU role",
        "roles",
        way_out="add a role that trains, generates or scores",
    )
    place.refuse_if(
        not task.arrangements,
        f"task `{task.id}` allows no arrangement",
        "arrangements",
        allowed="colocated, separate, hybrid",
    )
    place.refuse_if(
        task.max_gpus is not None and task.min_gpus > task.max_gpus,
        "`min_gpus` is above `max_gpus`",
        "min_gpus",
        got=f"{task.min_gpus} > {task.max_gpus}",
    )
    _check_coupling(task.coupling, place.at("coupling"))
    longest = _check_work(task, place.at("work_per_step"), lengths)
    place.at("roles").require_unique([role.id for role in task.roles], "role")
    for position, role in enumerate(task.roles):
        here = place.at(f"roles[{position}]")
        check_role(role, here, profiles, longest)
        if role.verdict_tokens is not None:
            lengths.check(role.verdict_tokens, here.at("verdict_tokens"))


def _check_work(task: TaskSpec, place: Place, lengths: _Lengths) -> int:
    """Check the lengths and counts of a step; return the tokens of the longest sequence."""
    work = task.work_per_step
    longest = lengths.check(work.prompt_tokens, place.at("prompt_tokens"))
    if work.response_tokens is not None:
        place.refuse_if(
            work.samples > MOST_GENERATED,
            f"task `{task.id}` generates more samples in a step than can be priced one by one",
            "samples",
            got=work.samples,
            allowed=f"at most {MOST_GENERATED}",
            way_out="plan a part of the step: the lengths are drawn from the same law",
        )
        return longest + lengths.check(work.response_tokens, place.at("response_tokens"))
    place.refuse_if(
        bool(work.history_tokens),
        f"task `{task.id}` has a history of response lengths but no `response_tokens`",
        "history_tokens",
        way_out="state how long the responses are now",
    )
    place.refuse_if(
        any(role.kind == "rollout" for role in task.roles),
        f"task `{task.id}` has a rollout role but no `response_tokens`",
        way_out="state how long the generated responses are",
    )
    return longest


def _check_coupling(coupling: CouplingSpec, place: Place) -> None:
    kind, staleness = coupling.kind, coupling.staleness_steps
    place.refuse_if(
        kind == "async" and staleness < 1,
        "async coupling needs a staleness bound",
        "staleness_steps",
        got=f"staleness_steps {staleness}",
        allowed="1 or more",
        way_out="state how many policy versions old a sample may be, or use sync",
    )
    place.refuse_if(
        kind != "async" and staleness != 0,
        f"{kind} coupling has no staleness",
        "staleness_steps",
        got=f"staleness_steps {staleness}",
        allowed="0",
        way_out="leave the key out, or use async",
    )
    place.refuse_if(
        kind != "async" and coupling.rollouts != "stream",
        f"{kind} coupling always generates batches",
        "rollouts",
        got=f"rollouts {coupling.rollouts}",
        allowed="nothing",
        way_out="leave the key out, or use async",
    )
    place.refuse_if(
        kind == "pipelined" and coupling.groups is None,
        "pipelined coupling needs `groups`",
        "groups",
        got=f"kind {kind}",
        way_out="state the number of micro-groups of a step",
    )
    place.refuse_if(
        kind != "pipelined" and coupling.groups is not None,
        "only pipelined coupling has `groups`",
        "groups",
        got=f"kind {kind}",
        way_out="leave it out",
    )


@dataclass(frozen=True)
class _Lengths:
    """Checks distributions of lengths; `digests` collects those of the trace files it reads."""

    folder: Path
    digests: dict[str, str]

    def check(self, lengths: Distribution, place: Place) -> int:
        """Check one distribution; return its longest length, tokens."""
        if isinstance(lengths, Trace):
            trace, self.digests[lengths.file] = read_trace_with_digest(self.folder / lengths.file)
            return longest_tokens(lengths, trace)
        if isinstance(lengths, LogNormal):
            place.refuse_if(
                lengths.median_tokens > lengths.max_tokens,
                "`median_tokens` is above `max_tokens`",
                "median_tokens",
                got=f"{lengths.median_tokens:g} > {lengths.max_tokens}",
            )
        if isinstance(lengths, Histogram):
            _check_histogram(lengths, place)
        return longest_tokens(lengths)


def _check_histogram(lengths: Histogram, place: Place) -> None:
    edges, counts = lengths.edges_tokens, lengths.counts
    place.refuse_if(
        len(edges) != len(counts) + 1 or not counts,
        "a histogram has one more edge than counts, and at least one count",
        "edges_tokens",
        got=f"{len(edges)} edges and {len(counts)} counts",
    )
    for position, (edge, following) in enumerate(itertools.pairwise(edges), start=1):
        place.refuse_if(
            following <= edge,
            "histogram edges must ascend",
            f"edges_tokens[{position}]",
            got=f"{following} after {edge}",
        )
    place.refuse_if(sum(counts) <= 0, "the histogram counts nothing", "counts")
