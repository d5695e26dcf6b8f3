"""The event loop: replicas, stages, tool workers, failures, arrivals, looks and moves on one clock."""

from __future__ import annotations

import math
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import count

import numpy as np

from libra_plan.models.topology import Cluster, GpuId
from libra_plan.planner.problem import IncumbentRole, IncumbentTask
from libra_plan.planner.simulate.moves import Moves
from libra_plan.planner.simulate.noisy_cost_model import NoisyCosts
from libra_plan.planner.simulate.policy import AllocationPolicy, TaskView, View
from libra_plan.planner.simulate.record import PlacedSpan, RolloutSeen, RunRecord, StageDone, StepDone
from libra_plan.planner.simulate.replica import Dealer, Replica
from libra_plan.planner.simulate.task import TaskRun
from libra_plan.planner.simulate.work import DrawnWork, draw_failures, random_stream
from libra_plan.planner.simulate.world import World, WorldTask, world_cluster

__all__ = ["Engine", "run_world"]


def run_world(
    world: World,
    policy: AllocationPolicy,
    seed: int,
    *,
    keep_stages: bool = False,
    progress: Callable[[float], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> RunRecord:
    """Run a world under a policy to its end; the same seed draws the same work for every policy.

    `progress` receives the share that is done; `clock` times the policy's decisions.
    """
    return Engine(world, policy, seed, keep_stages=keep_stages, clock=clock).run(progress)


class Engine:
    """One run of a world. `dealer_of` makes what assigns the trajectories of a task to replicas."""

    def __init__(
        self,
        world: World,
        policy: AllocationPolicy,
        seed: int,
        *,
        keep_stages: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        dealer_of: Callable[[WorldTask, DrawnWork], Dealer] = lambda spec, work: Dealer(spec),
    ) -> None:
        self.world, self.policy, self.seed, self.now = world, policy, seed, 0.0
        self.ends = world.hours * 3600.0
        self.record = RunRecord(
            world.id, policy.name, seed, world.hours, world.site.gpus, keeps_stages=keep_stages
        )
        self.cluster, self.lost = world_cluster(world), frozenset[GpuId]()
        works = [DrawnWork(task, seed) for task in world.tasks]
        self.runs = {
            work.task.id: TaskRun(work.task, seed, self, work, dealer_of(work.task, work)) for work in works
        }
        self.estimated = NoisyCosts(world, random_stream(seed, "error"), policy.moves_free)
        self.true = NoisyCosts(world, None, policy.moves_free)
        self.moves = Moves(self, random_stream(seed, "switch"))
        self._clock = clock
        self._heap: list[tuple[float, int, Callable[[], None] | tuple[TaskRun, Replica]]] = []
        self._order = count()
        self._here: set[str] = set()
        self.broken: dict[str, IncumbentTask] = {}
        self._free_workers: float = world.site.env_workers or math.inf
        self._calls: deque[tuple[float, Callable[[], None]]] = deque()
        self._held_since: dict[str, float] = {}
        self._busy_at_look: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._looked_s = 0.0

    # ------------------------------------------------------------ the loop

    def run(self, progress: Callable[[float], None] | None = None) -> RunRecord:
        """Run to the end of the world, or until every task has done its steps."""
        for task in self.world.tasks:
            self.after(task.arrives_s, partial(self._arrive, task.id))
        self._plan_failures()
        self.after(self.world.look_s, self._look_again)
        told, heap, ends, tasks = 0.0, self._heap, self.ends, len(self.runs)
        finished, events = self.record.finished_s, 0
        while heap and heap[0][0] <= ends and len(finished) < tasks:
            at, _, what = heappop(heap)
            if isinstance(what, tuple):
                events += self._follow(at, *what)
            else:
                self.now = at
                what()
            events += 1
            if progress is not None and at - told >= ends / 200.0:
                told = at
                progress(at / ends)
        self.record.events = events
        self.now = min(self.ends, self.now) if self._all_done() else self.ends
        self._see_rollouts()
        for run in self.runs.values():
            self.settle(run)
        return self.record

    def _all_done(self) -> bool:
        return len(self.record.finished_s) == len(self.runs)

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Schedule a call after some seconds."""
        heappush(self._heap, (self.now + seconds, next(self._order), act))

    def watch(self, task: TaskRun, replica: Replica) -> None:
        """Expect the next event of a replica."""
        at = replica.next_s()
        if at < replica.scheduled:
            replica.scheduled = at
            heappush(self._heap, (at, next(self._order), (task, replica)))

    def _follow(self, at: float, task: TaskRun, replica: Replica) -> int:
        """Run a replica until something else comes first; return the number of its events."""
        if at != replica.scheduled:
            return 0  # an earlier event was expected meanwhile
        replica.scheduled = math.inf
        heap, ends, events = self._heap, self.ends, 0
        while True:
            then = replica.next_s()
            if then > ends or (heap and then > heap[0][0]):
                break
            self.now = then
            gave = replica.step()
            events += 1
            if gave is not None:
                task.ended(replica, gave)
                break
        self.watch(task, replica)
        return events

    def call_tool(self, seconds: float, done: Callable[[], None]) -> None:
        """Run a tool call when a worker is free, first come, first served."""
        if self._free_workers > 0:
            self._free_workers -= 1
            self.after(seconds, partial(self._called, done))
        else:
            self._calls.append((seconds, done))

    def _called(self, done: Callable[[], None]) -> None:
        self._free_workers += 1
        if self._calls:
            self.call_tool(*self._calls.popleft())
        done()

    # ------------------------------------------------------------ reports of tasks

    def stage(self, task: str, role: str, begun: float, seconds: float, gpus: int, busy_gpu_s: float) -> None:
        """Note a stage as it begins; of one that outlasts the world only what is within counts."""
        if begun + seconds > self.ends:
            busy_gpu_s *= max(0.0, self.ends - begun) / seconds
        self.record.stage(StageDone(task, role, begun, seconds, gpus, busy_gpu_s))

    def step_done(self, task: TaskRun, done: StepDone) -> None:
        """Note a step; a task that has done all of them leaves."""
        self.record.steps.append(done)
        if task.finished:
            self.record.finished_s[task.spec.id] = self.now
            self._here.discard(task.spec.id)
            self.settle(task)
            task.stop()
            self.moves.left(task)
            self.after(0.0, lambda: self._decide(urgent=True))
        elif task.draining:
            self.moves.drained(task)

    def settle(self, task: TaskRun) -> None:
        """Add up what a task held and used since it was placed."""
        name = task.spec.id
        since = self._held_since.pop(name, None)
        if since is None or task.placed is None:
            return
        seconds = self.now - since
        self.record.held_gpu_s[name] += seconds * task.gpus
        replicas = tuple((role.role, tuple(map(len, role.replicas))) for role in task.placed.roles)
        roles = tuple((role, sum(sizes)) for role, sizes in replicas)
        self.record.placements.append(PlacedSpan(name, since, self.now, roles, replicas, _pools(task.placed)))
        for each in task.replicas:
            busy = each.busy_until(self.now)
            self.record.busy_gpu_s[name, "rollout"] += min(busy - each.settled_s, seconds) * each.gpus
            each.settled_s = busy

    def hold(self, task: TaskRun) -> None:
        """Start to count what a task holds after an elastic change."""
        name = task.spec.id
        self._held_since[name] = self.now
        for role in () if task.placed is None else task.placed.roles:
            self._busy_at_look[name, role.role] = self._busy_s(task, role.role)

    def _busy_s(self, task: TaskRun, role: str) -> float:
        """Return the GPU-seconds that a role of a task has used so far."""
        now = self.record.busy_gpu_s[task.spec.id, role]
        if role == "rollout":
            now += sum((each.busy_s - each.settled_s) * each.gpus for each in task.replicas)
        return now

    def begin(self, task: TaskRun, placed: IncumbentTask) -> None:
        """Start a task on these GPUs."""
        self._held_since[task.spec.id] = self.now
        self.broken.pop(task.spec.id, None)
        task.begin(placed)

    # ------------------------------------------------------------ arrivals and failures

    def _arrive(self, task: str) -> None:
        self._here.add(task)
        self.record.arrived_s[task] = self.now
        self.after(0.0, lambda: self._decide(urgent=True))

    def _plan_failures(self) -> None:
        for gpu, at, repair in draw_failures(self.world, self.seed):
            self.after(at, partial(self._fail, gpu))
            self.after(at + repair, partial(self._repaired, gpu))
            self.record.failures.append((at, str(gpu), repair))

    def _fail(self, gpu: GpuId) -> None:
        self.lost = self.lost | {gpu}
        for run in self.runs.values():
            if run.placed is not None and gpu in gpus_of(run.placed):
                self.settle(run)
                self.broken[run.spec.id] = run.placed
                run.stop()
                self.moves.failed(run)
        self.moves.forget(gpu)
        self._decide(urgent=True)

    def _repaired(self, gpu: GpuId) -> None:
        self.lost = self.lost - {gpu}
        self._decide(urgent=True)

    # ------------------------------------------------------------ looks

    def _look_again(self) -> None:
        self._see_rollouts()
        self._decide(urgent=False)
        self.after(self.world.look_s, self._look_again)

    def _see_rollouts(self) -> None:
        """Record for pictures the GPU time that rollouts have used so far."""
        for name, run in self.runs.items() if self.record.keeps_stages else ():
            if run.spec.costs.decode:
                live = () if run.placed is None else run.replicas
                now = sum((each.busy_until(self.now) - each.settled_s) * each.gpus for each in live)
                seen = RolloutSeen(name, self.now, self.record.busy_gpu_s[name, "rollout"] + now)
                self.record.rollouts.append(seen)

    def _decide(self, *, urgent: bool) -> None:
        if not self._here or self.moves.under_way:
            self.moves.missed = self.moves.missed or urgent
            return
        begun = self._clock()
        wanted = self.policy.decide(self._view(urgent))
        self.record.decide_s.append(self._clock() - begun)
        if wanted is not None:
            self.moves.start(wanted)

    def decide_again(self) -> None:
        """Let the policy decide again, because something happened while tasks moved."""
        self.after(0.0, lambda: self._decide(urgent=True))

    def _view(self, urgent: bool) -> View:
        tasks = tuple(
            self._task_view(self.runs[task.id]) for task in self.world.tasks if task.id in self._here
        )
        broken = tuple(held for name, held in self.broken.items() if name in self._here)
        running = tuple(run.placed for run in self.runs.values() if run.placed is not None)
        self._looked_s = self.now
        return View(
            self.now, self.world, self._working(), tasks, running, broken, self.estimated, self.true, urgent
        )

    def _working(self) -> Cluster:
        if not self.lost:
            return self.cluster
        nodes = tuple(
            replace(node, gpus=tuple(gpu for gpu in node.gpus if gpu.id not in self.lost))
            for node in self.cluster.nodes
        )
        return replace(self.cluster, nodes=tuple(node for node in nodes if node.gpus))

    def _task_view(self, run: TaskRun) -> TaskView:
        means = tuple(run.means)
        return TaskView(
            run.spec.id, run.version, run.steps_since_placed, means, dict(run.seen_s), run.queue_pressure(),
            self._busy_since_look(run),
        )  # fmt: skip

    def _busy_since_look(self, run: TaskRun) -> dict[str, float]:
        """Return the share of each role's GPU-seconds since the last look that were used."""
        name, found = run.spec.id, {}
        seconds = self.now - max(self._looked_s, self._held_since.get(name, self.now))
        for role in () if run.placed is None else run.placed.roles:
            gpus = sum(map(len, role.replicas))
            now = self._busy_s(run, role.role)
            before = self._busy_at_look[name, role.role]
            self._busy_at_look[name, role.role] = now
            if seconds > 0.0:
                found[role.role] = float(np.clip((now - before) / (seconds * gpus), 0.0, 1.0))
        return found


def _pools(placed: IncumbentTask) -> tuple[tuple[str, int], ...]:
    """Count the GPUs of the roles that take the same ones in turn."""
    groups: dict[str, list[IncumbentRole]] = {}
    for role in placed.roles:
        groups.setdefault(role.share_group, []).append(role)
    return tuple(
        (
            " + ".join(role.role for role in own),
            len({g for r in own for replica in r.replicas for g in replica}),
        )
        for own in groups.values()
    )


def gpus_of(placed: IncumbentTask) -> frozenset[GpuId]:
    """List the GPUs of a placement."""
    return frozenset(gpu for role in placed.roles for replica in role.replicas for gpu in replica)
