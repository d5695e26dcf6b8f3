"""Measure the re-plan loop: still in an unchanged or shaking world, right when it drifts or breaks.

    python benchmarks/replan.py --stick DIR [--only NAME] [--looks N] [--noisy-looks N] [--kills N]

The measuring stick DIR has `sia_step_time_profiles.csv.gz` and `sia_workloads.csv.gz`: 64 of Sia's jobs on
its 64 GPUs, worth what Sia's objective says. CPU seconds are given, since a busy machine stretches others.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from replan_drift import drift
from replan_worlds import SiaWorld, at, window, with_running

from libra_plan.planner.controller.choose import AllowedChanges, choose, place_choice
from libra_plan.planner.controller.configuration_values import ValueCache, configuration_values
from libra_plan.planner.controller.history import derive_again
from libra_plan.planner.controller.hysteresis import ReplanPolicy, RulePolicy, SafetyPolicy, StayPolicy
from libra_plan.planner.controller.reconcile import reconcile
from libra_plan.planner.controller.replan import look, recover
from libra_plan.planner.controller.snapshot import LoopInputs
from libra_plan.planner.controller.state import LoopState
from libra_plan.planner.controller.store import StateStore
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.document import placements_of
from libra_plan.planner.launchers.store import read_current, write_manifest
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import held_by
from libra_plan.planner.problem import IncumbentTask, Problem
from libra_plan.planner.tables import table_cluster, table_task
from libra_plan.planner.telemetry.observations import Event, EventKind, ObservedTime
from libra_plan.planner.verify import violations_of


def line(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def best_plan(problem: Problem) -> tuple[tuple[IncumbentTask, ...], float]:
    """Return the best plan from nothing, and what it is worth."""
    market = configuration_values(problem)
    found = choose(market, [task.values for task in market.tasks], AllowedChanges(), 1e-5, None)
    plan = place_choice(market, found.chosen, found.prices, {})
    assert plan is not None
    return held_by(plan), found.value


# ---------------------------------------------------------------- unchanged, and its replay


def unchanged(stick: Path, looks: int, folder: Path) -> None:
    """Look again and again at a world in which everything is as predicted; record, then replay."""
    sia = SiaWorld.of(stick, 64, 0, sias_own=True)
    bare = sia.problem(sia.goodput)
    held, _ = best_plan(bare)
    problem = with_running(bare, held)
    seconds = {}
    for task in held:
        gpus = task.roles[0].replicas
        options = problem.task_of[task.task].roles[0].options
        name = gpus[0][0].node.rsplit("-", 1)[0]
        seconds[task.task] = next(
            o.time_s.value for o in options if (o.gpu_class, o.gpus) == (name, len(gpus))
        )
    seen = tuple(ObservedTime(task, "train", value) for task, value in seconds.items())
    store, state, memo = StateStore.open(folder / "replan.db"), LoopState(), ValueCache()
    rules: Counter[str] = Counter()
    moves, cpu = 0, []
    for number in range(looks):
        now = at(number)
        inputs = LoopInputs(problem, ReplanPolicy(), now, window(problem, now, seen))
        begun = time.process_time()
        looked = reconcile(inputs, state, memo)
        cpu.append(time.process_time() - begun)
        store.record(inputs, state, looked, "kept")
        rules[looked.decision.rule] += 1
        moves += len(looked.decision.moves)
        state = looked.kept
    line("unchanged world, 64 tasks / 64 GPUs", f"{looks} looks", f"{moves} moves", f"rules {dict(rules)}",
         f"look {np.median(cpu) * 1e3:.1f} ms CPU (most {max(cpu):.2f} s)")  # fmt: skip
    begun, cpu_begun = time.perf_counter(), time.process_time()
    every = [each.same for each in derive_again(store)]
    wall, spent = time.perf_counter() - begun, time.process_time() - cpu_begun
    line("replay", f"{len(every)} looks", f"{sum(every)} bit-identical",
         f"{len(every) / wall:.0f} looks/s of wall, {len(every) / spent:.0f} of CPU")  # fmt: skip
    store.close()


# ---------------------------------------------------------------- noise


def noisy(stick: Path, noise: float, looks: int, seed: int) -> tuple[float, float, float, float]:
    """Shake every rate of every job on every look; the plan that runs was made from one shaken table.

    Gives the share of the true objective lost (mean, at the end), restarts per task-hour, and the share
    of tasks changed per look.
    """
    sia = SiaWorld.of(stick, 64, seed, sias_own=True)
    rng = np.random.default_rng(seed + 1)
    true = configuration_values(sia.problem(sia.goodput))
    best = choose(true, [task.values for task in true.tasks], AllowedChanges(), 1e-5, None).value
    worth = {
        (task.id, task.priced.table.blocks(number)[0][0], int(task.gpus[number])): float(task.values[number])
        for task in true.tasks
        for number in range(len(task.priced.table))
    }

    def lost(held: tuple[IncumbentTask, ...]) -> float:
        places = (
            (h.task, h.roles[0].replicas[0][0].node.rsplit("-", 1)[0], len(h.roles[0].replicas)) for h in held
        )
        return 1.0 - sum(_worth(worth, *place) for place in places) / best

    def shaken() -> np.ndarray:
        return sia.goodput * np.exp(rng.normal(0.0, noise, sia.goodput.shape))

    bare = sia.problem(shaken())
    held, _ = best_plan(bare)
    state, memo, losses, moves = LoopState(), ValueCache(), [], 0
    begins = lost(held)
    for number in range(looks):
        problem, now = with_running(bare, held), at(number)
        inputs = LoopInputs(problem, ReplanPolicy(), now, window(problem, now, sia.seen(shaken())))
        looked = reconcile(inputs, state, memo)
        plan = looked.decision.plan
        if plan is not None:
            assert violations_of(looked.problem, plan) == []
            moves += len(looked.decision.moves)
            held = held_by(plan)
        state = looked.kept if plan is None else looked.adopted
        losses.append(lost(held))
    hours = looks / 60.0
    line(
        f"{noise:.0%} noise, seed {seed}",
        f"{looks} looks of 60 s",
        f"lost {np.mean(losses):.3%} (begins {begins:.3%}, ends {losses[-1]:.3%})",
        f"{moves / 64 / hours:.2f} restarts per task-hour",
        f"{moves / 64 / looks:.2%} of tasks a look",
    )
    return float(np.mean(losses)), losses[-1], moves / 64 / hours, moves / 64 / looks


def _worth(worth: dict[tuple[str, str, int], float], task: str, name: str, gpus: int) -> float:
    """Return a place's true worth; one beaten by a smaller one of its class does what that does."""
    known = [
        value for (own, kind, count), value in worth.items() if (own, kind) == (task, name) and count <= gpus
    ]
    return worth.get((task, name, gpus), max(known, default=0.0))


# ---------------------------------------------------------------- steps


def step_changes(gpus: int, tasks: int) -> None:
    """Lose a GPU, then let a task arrive, on a full cluster: say whether plans are valid, and how soon."""
    rng = np.random.default_rng(0)
    drawn = [_drawn_task(rng, f"task{n:03}") for n in range(tasks)]
    bare = Problem(table_cluster(gpus, 8), tuple(drawn))
    held, _ = best_plan(bare)
    problem = with_running(bare, held)
    state, memo = LoopState(), ValueCache()

    def looked_at(number: int, **more: object) -> tuple[float, object]:
        nonlocal state, problem
        now = at(number)
        inputs = LoopInputs(problem, ReplanPolicy(), now, window(problem, now, **more))
        begun = time.process_time()
        found = reconcile(inputs, state, memo)
        spent = time.process_time() - begun
        plan = found.decision.plan
        if plan is not None:
            assert violations_of(found.problem, plan) == []
            problem = with_running(problem, held_by(plan))
        state = found.kept if plan is None else found.adopted
        return spent, found.decision

    first, _ = looked_at(0)
    again, _ = looked_at(1)
    lost = problem.running[0].roles[0].replicas[0][0]
    failure, said = looked_at(2, events=(Event(EventKind.GPU_LOST, gpu=lost, detail="XID 79"),))
    arrived = _drawn_task(rng, "arrived")
    problem = replace(problem, tasks=(*problem.tasks, replace(arrived, weight=4.0)))
    arrival, then = looked_at(3)
    for name, spent, decision in (("GPU lost", failure, said), ("task arrived", arrival, then)):
        actions = Counter(move.action for move in decision.moves)  # type: ignore[attr-defined]
        line(f"{name}, {gpus} GPUs / {tasks} tasks", f"look {spent:.2f} s CPU",
             f"{decision.rule}: {dict(actions)}, plan verified")  # type: ignore[attr-defined]  # fmt: skip
    line(f"first and unchanged look, {gpus} GPUs", f"{first:.2f} s, {again:.3f} s CPU")


def _drawn_task(rng: np.random.Generator, name: str):
    times = {}
    for role in ("train", "rollout"):
        work, power = float(rng.uniform(20, 200)), float(rng.uniform(0.6, 0.95))
        times[role] = {count: work / count**power for count in (1, 2, 4, 8, 16, 32)}
    return table_task(name, float(rng.choice([1.0, 2.0])), times, restart_s=90.0)


# ---------------------------------------------------------------- kill -9


class Site:
    """A folder with a plan, whose two tasks change in weight from look to look, so that plans change."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number = folder, 0
        times = {gpus: 100.0 / gpus**0.9 for gpus in range(1, 9)}
        self.tasks = tuple(table_task(name, 1.0, {"train": times}, restart_s=1.0) for name in "ab")
        problem = Problem(table_cluster(8), self.tasks)
        write_manifest(folder, build_manifest(problem, solve_problem(problem).require_plan(), name="lab"))

    def facts(self, parent: object, requests: object, state: object) -> tuple[LoopInputs, None]:
        heavy = self.number % 2
        tasks = tuple(replace(t, weight=9.0 if n == heavy else 1.0) for n, t in enumerate(self.tasks))
        problem = Problem(table_cluster(8), tasks, placements_of(parent))  # type: ignore[arg-type]
        policy = ReplanPolicy(
            rule=RulePolicy(looks_up=1, looks_down=1),
            stay=StayPolicy(task_s=0.0),
            safety=SafetyPolicy(least_steps=0),
        )
        now = at(self.number)
        return LoopInputs(problem, policy, now, window(problem, now)), None

    def look(self) -> None:
        store = StateStore.open(self.folder / "replan.db")
        look(self.folder, store, self.facts)
        store.close()


def kills(count: int, folder: Path) -> None:
    """Kill a look with signal 9 at random moments; look at what is left after each."""
    site, rng = Site(folder), np.random.default_rng(0)
    took = [_timed(site) for _ in range(6)]
    whole_s = float(np.median(took))
    cut_off = corrupt = lost = applied = 0
    for number in range(count):
        site.number += 1
        before = _generation(folder)
        cut_off += _killed(site.look, float(rng.uniform(0.0, 1.3)) * whole_s)
        try:
            store = StateStore.open(folder / "replan.db")
            known = {row.manifest for row in store.looks(newest=4) if row.outcome in ("pending", "applied")}
            recover(folder, store)
            current = read_current(folder).manifest
            assert current is not None
            recorded = [row for row in store.looks(newest=4) if row.manifest in known and row.manifest]
            lost += bool(recorded) and recorded[-1].outcome != "applied"
            lost += bool(recorded) and recorded[-1].manifest != current.metadata.digest
            applied += current.metadata.generation > before
            store.state()
            store.close()
        except Exception as problem:
            print(f"kill {number}: {problem}", file=sys.stderr)
            corrupt += 1
    store = StateStore.open(folder / "replan.db")
    same = [each.same for each in derive_again(store)]
    store.close()
    line(
        "kill -9",
        f"{count} kills over {1.3 * whole_s:.2f} s a look",
        f"{cut_off} looks cut off, {applied} changed the plan",
        f"{corrupt} corrupt states, {lost} lost decisions",
        f"{sum(same)} of {len(same)} recorded looks replay",
    )


def _generation(folder: Path) -> int:
    manifest = read_current(folder).manifest
    assert manifest is not None
    return manifest.metadata.generation


def _timed(site: Site) -> float:
    site.number += 1
    begun = time.perf_counter()
    _killed(site.look, None)
    return time.perf_counter() - begun


def _killed(work: Callable[[], None], after_s: float | None) -> bool:
    """Do something in a child, killed after a time; tell whether it was cut off."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)  # our own child, by its id
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise RuntimeError("a look failed")
    return os.WIFSIGNALED(status)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stick", type=Path, help="folder with Sia's profiles and workloads")
    parser.add_argument("--only", choices=["unchanged", "noise", "drift", "step", "kill"])
    parser.add_argument("--looks", type=int, default=10_000, help="of the unchanged world")
    parser.add_argument("--noisy-looks", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=500)
    given = parser.parse_args()
    wanted = lambda name: given.only in (None, name)  # noqa: E731
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        if wanted("kill"):
            (folder / "kill").mkdir()
            kills(given.kills, folder / "kill")
        if wanted("step"):
            step_changes(512, 64)
        if wanted("drift"):
            line(*drift())
        if wanted("noise") and given.stick is not None:
            for noise in (0.05, 0.2):
                every = [noisy(given.stick, noise, given.noisy_looks, seed) for seed in range(given.seeds)]
                lost, end, restarts, moved = (float(np.mean(each)) for each in zip(*every, strict=True))
                line(f"{noise:.0%} noise, mean of {given.seeds}", f"lost {lost:.3%}, at the end {end:.3%}",
                     f"{restarts:.2f} restarts per task-hour", f"{moved:.2%} of tasks a look")  # fmt: skip
        if wanted("unchanged") and given.stick is not None:
            unchanged(given.stick, given.looks, folder)


if __name__ == "__main__":
    main()
