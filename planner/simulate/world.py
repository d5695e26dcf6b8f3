"""A world: a cluster, the tasks on it with their true costs, and failures. One small file each.

Everything a run needs is in the file, so that a user can copy one and put in figures of their own.
Costs are those of `models/`: a decode step of B sequences takes fixed + per_sequence·B + per_token·Σcontexts
seconds; a training micro-batch fixed + per_token·ΣS + per_square·ΣS².
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np

from libra_plan.errors import InputError, WorkloadError
from libra_plan.models.costs.base import DecodeCoefficients
from libra_plan.models.length_forecast import law_mean_tokens, scaled
from libra_plan.models.lengths import IntArray, LengthSample, sample_lengths
from libra_plan.models.topology import Cluster
from libra_plan.planner.tables import table_cluster
from libra_plan.profiles.document import decode, read_document
from libra_plan.profiles.schema_base import Count, File, Name, NonNegative, Positive, Seconds, Weight, Whole
from libra_plan.profiles.schema_workload import LogNormal

__all__ = [
    "Costs",
    "DecodeCosts",
    "Drift",
    "Elastic",
    "Failures",
    "Outcomes",
    "Scoring",
    "Site",
    "SwitchCosts",
    "Tools",
    "Training",
    "World",
    "WorldTask",
    "find_worlds",
    "read_world",
    "shipped_worlds",
    "world_cluster",
]

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Site(File, frozen=True, kw_only=True):
    """The cluster: equal GPUs in equal nodes, and CPU workers that run tools for all tasks."""

    gpus: Count
    gpus_per_node: Count = 8
    env_workers: Count | None = None


class Failures(File, frozen=True, kw_only=True):
    """GPUs fail at random (mean time between failures of one GPU) and are repaired (log-normal)."""

    mtbf_hours: Positive
    repair_median_s: Positive
    repair_sigma: NonNegative = 0.0


class SwitchCosts(File, frozen=True, kw_only=True):
    """What one move of a task costs. Each draw is triangular: (least, most frequent, greatest).

    `drain_s` is how long a move waits for the end of the step before it cuts it off.
    """

    start_s: tuple[Seconds, Seconds, Seconds]
    save_gib_per_s: tuple[Positive, Positive, Positive]
    load_gib_per_s: tuple[Positive, Positive, Positive]
    drain_s: Seconds = 900.0


class Drift(File, frozen=True, kw_only=True):
    """Mean response length over training: from the first by the same factor every step to the last.

    Responses are log-normal with `sigma`, none longer than `max_tokens`; without `steps` the mean stays.
    """

    first_mean_tokens: Positive
    sigma: NonNegative
    max_tokens: Count
    last_mean_tokens: Positive | None = None
    steps: Count | None = None

    def mean_at(self, step: float) -> float:
        """Return the mean of the responses of a step, tokens."""
        if self.last_mean_tokens is None or self.steps is None:
            return self.first_mean_tokens
        return float(self.first_mean_tokens * (self.last_mean_tokens / self.first_mean_tokens) ** min(
            1.0, step / self.steps
        ))  # fmt: skip

    def law(self, mean_tokens: float) -> LogNormal:
        """Return the distribution with this mean that lengths are drawn from."""
        return _law(self.sigma, self.max_tokens, mean_tokens)


@lru_cache(maxsize=4096)
def _law(sigma: float, max_tokens: int, mean_tokens: float) -> LogNormal:
    median = mean_tokens * math.exp(-(sigma**2) / 2.0)
    base = LogNormal(median_tokens=min(median, float(max_tokens)), sigma=sigma, max_tokens=max_tokens)
    found = scaled(base, mean_tokens / law_mean_tokens(base))
    assert isinstance(found, LogNormal)
    return found


class Tools(File, frozen=True, kw_only=True):
    """Tool calls: one after each turn, log-normal seconds; `on_workers` they take a CPU worker."""

    mean_s: Positive
    sigma: NonNegative = 0.0
    on_workers: bool = True


class Outcomes(File, frozen=True, kw_only=True):
    """What tool calls return, and what it tells of a trajectory's length (`work.py` has the law).

    A step takes the next samples ÷ `per_prompt` of `prompts` prompts, in turn. A trajectory has one turn per
    `turn_tokens` tokens; without it, as many turns as the task says.
    """

    prompts: Count
    per_prompt: Count
    prompt_share: Share = 0.38
    telling: Share = 0.73
    tools: Count = 1
    turn_tokens: Count | None = None

    def prompt_of(self, step: int, samples: int) -> IntArray:
        """Return the number of the prompt of each trajectory of a step; shape (samples,)."""
        first = step * -(-samples // self.per_prompt)
        numbers: IntArray = (first + np.arange(samples) // self.per_prompt) % self.prompts
        return numbers


class DecodeCosts(File, frozen=True, kw_only=True):
    """A rollout replica of `tp` GPUs: its decode step, its prefill and its room for KV cache."""

    tp: Count
    fixed_s: NonNegative
    per_sequence_s: NonNegative
    per_token_s: NonNegative
    prefill_s_per_token: NonNegative = 0.0
    kv_tokens: Positive
    max_sequences: Count

    def coefficients(self) -> DecodeCoefficients:
        """Return the coefficients of the decode step."""
        return DecodeCoefficients(self.fixed_s, self.per_sequence_s, self.per_token_s, 0.0)


class Training(File, frozen=True, kw_only=True):
    """A training replica of `gpus` GPUs, and what joins replicas.

    `all_reduce_s` is charged once per step with more than one replica. Each replica is slower by a factor
    exp(N(0, straggler_sigma²)), drawn per step.
    """

    gpus: Count
    fixed_s: NonNegative = 0.0
    per_token_s: Positive
    per_square_s: NonNegative = 0.0
    micro_batch_tokens: Count
    all_reduce_s: Seconds = 0.0
    straggler_sigma: NonNegative = 0.0


class Scoring(File, frozen=True, kw_only=True):
    """A role that reads whole sequences (reference, reward model): seconds per token of a replica."""

    id: Name
    gpus: Count = 1
    per_token_s: Positive


class Costs(File, frozen=True, kw_only=True):
    """What the roles of a task cost. Without `decode` it only trains, without `train` it only rolls out.

    `sync_s` hands new weights to rollouts; a move loads `weights_gib`, and saves and loads `state_gib`;
    `wake_s` is what every role takes to wake up where roles take the same GPUs in turn.
    """

    decode: tuple[DecodeCosts, ...] = ()
    train: Training | None = None
    scoring: tuple[Scoring, ...] = ()
    sync_s: Seconds = 0.0
    weights_gib: NonNegative = 0.0
    state_gib: NonNegative = 0.0
    wake_s: Seconds = 0.0


class Elastic(File, frozen=True, kw_only=True):
    """What it costs when whole replicas join rollout or training while the others go on.

    `to_rollout_s`: until a replica that trained serves. One that served trains after `snapshot_s`, in the
    background, and `to_training_s` in which training stands still. GPUs that were not the task's before must
    start and load besides, in the background.
    """

    to_rollout_s: Seconds
    to_training_s: Seconds
    snapshot_s: Seconds = 0.0


class WorldTask(File, frozen=True, kw_only=True):
    """A task. `steps` ends it; `arrives_s` begins it. Without `steps` it runs to the end of the world.

    `rollouts` of an async task: a `stream` that never drains, or `batches`, a step's samples as one.
    Without `elastic` any change of its placement stops all of it. With `outcomes`, part of the response is
    what tools return.
    """

    id: Name
    weight: Weight = 1.0
    coupling: Literal["sync", "async"] = "sync"
    staleness: Whole = 0
    rollouts: Literal["stream", "batches"] = "stream"
    arrangements: tuple[Literal["colocated", "separate"], ...] = ("colocated", "separate")
    samples: Count
    prompts: LogNormal
    responses: Drift
    turns: Count = 1
    tools: Tools | None = None
    outcomes: Outcomes | None = None
    costs: Costs
    arrives_s: Seconds = 0.0
    steps: Count | None = None
    min_gpus: Whole = 0
    max_gpus: Count | None = None
    elastic: Elastic | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that hold GPUs, in the order of a step."""
        first = ("rollout",) if self.costs.decode else ()
        last = ("train",) if self.costs.train else ()
        return (*first, *(each.id for each in self.costs.scoring), *last)

    def samples_at(self, mean_tokens: float) -> tuple[LengthSample, LengthSample]:
        """Return the quantile samples of prompts and responses of one step at a mean length."""
        prompts = sample_lengths(self.prompts, self.samples)
        return prompts, sample_lengths(self.responses.law(mean_tokens), self.samples)


class World(File, frozen=True, kw_only=True):
    """A world. `origin` says where its figures are from.

    `model_error` is the standard deviation of ln(estimated ÷ true) of every role's times; policies plan with
    estimated ones. `look_s` is the time between two looks of a policy.
    """

    schema_version: Literal[1]
    id: Name
    origin: str
    hours: Positive
    site: Site
    tasks: tuple[WorldTask, ...]
    switching: SwitchCosts
    failures: Failures | None = None
    model_error: NonNegative = 0.0
    look_s: Positive = 300.0

    @property
    def task_of(self) -> dict[str, WorldTask]:
        """Map tasks by id."""
        return {task.id: task for task in self.tasks}


def read_world(path: Path) -> World:
    """Read a world file and check what a schema cannot say."""
    world = decode(read_document(path, WorkloadError), World, WorkloadError)
    for problem in _faults(world):
        raise WorkloadError(f"{path.name}: {problem}")
    return world


def _faults(world: World) -> Iterator[str]:
    names = [task.id for task in world.tasks]
    if not names or len(set(names)) < len(names):
        yield "a world has tasks, each with an id of its own"
    for task in world.tasks:
        if not task.roles:
            yield f"{task.id}: neither decode nor train is given: it would do nothing"
        if task.tools is not None and not task.costs.decode:
            yield f"{task.id}: tools belong to rollouts, and it has none"
        yield from _coupling_faults(task)
        if len(set(task.roles)) < len(task.roles):
            yield f"{task.id}: roles have the same id"
        if len({each.tp for each in task.costs.decode}) < len(task.costs.decode):
            yield f"{task.id}: decode costs are given twice for one tp"
        if task.prompts.max_tokens + task.responses.max_tokens > min(
            (each.kv_tokens for each in task.costs.decode), default=math.inf
        ):
            yield f"{task.id}: the longest trajectory does not fit kv_tokens"
        yield from _tool_faults(world, task)


def _tool_faults(world: World, task: WorldTask) -> Iterator[str]:
    if task.tools is not None and task.tools.on_workers and world.site.env_workers is None:
        yield f"{task.id}: tools on workers, but site.env_workers is not given"
    if task.outcomes is not None and task.tools is None:
        yield f"{task.id}: outcomes are those of tool calls: tools are not given"


def _coupling_faults(task: WorldTask) -> Iterator[str]:
    if (task.coupling == "async") != (task.staleness > 0):
        yield f"{task.id}: async needs staleness ≥ 1, sync has 0"
    if task.coupling == "sync" and task.rollouts != "stream":
        yield f"{task.id}: sync tasks always generate batches; leave rollouts out"
    if task.coupling == "async" and not (task.costs.decode and task.costs.train):
        yield f"{task.id}: async joins a rollout and a training; it lacks one"
    if task.coupling == "async" and task.arrangements != ("separate",):
        yield f"{task.id}: async roles are on GPUs of their own: arrangements [separate]"
    if task.elastic is not None and "separate" not in task.arrangements:
        yield f"{task.id}: elastic replicas join roles on GPUs of their own: arrangements [separate]"


def world_cluster(world: World) -> Cluster:
    """Return the whole cluster of a world."""
    return table_cluster(world.site.gpus, min(world.site.gpus_per_node, world.site.gpus))


def find_worlds(given: Iterable[str | Path | World], hours: float | None = None) -> list[World]:
    """Read worlds by file or by the id of a shipped one; `all` stands for every shipped world.

    `hours` replaces the hours that each world is simulated for.
    """
    shipped, found = shipped_worlds(), []
    wanted = list(given)
    for each in list(shipped) if wanted == ["all"] else wanted:
        if isinstance(each, World):
            world = each
        else:
            path = shipped.get(str(each), Path(each))
            if str(each) not in shipped and not path.exists():
                allowed = ", ".join(shipped) + ", or a file"
                raise InputError("there is no such world", got=str(each), allowed=allowed)
            world = read_world(path)
        found.append(world if hours is None else msgspec.structs.replace(world, hours=hours))
    return found


def shipped_worlds() -> dict[str, Path]:
    """Map the ids of the worlds that come with the package to their files."""
    folder = Path(__file__).parent / "worlds"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}
