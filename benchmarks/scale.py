"""Measure whole solves at cluster scale, as a user has them: priced tasks in, a verified plan out.

`python benchmarks/scale.py --page` measures every size over five seeds and prints
docs/measurements/scale.md. `python benchmarks/scale.py --gpus N --tasks T [--seed S] [--policy NAME]
[--running]` measures one problem and prints JSON lines; `--kinds K` makes tasks of K kinds only. Every
measurement is a process of its own with one thread. Limits count CPU seconds unless `--wall`, since a busy
machine stretches wall seconds only.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from libra_plan.models.parallelism import Layout
from libra_plan.models.quantities import Origin, exactly
from libra_plan.models.topology import Cluster, Gpu, GpuId, Node
from libra_plan.planner.optimize.base import SolveParams
from libra_plan.planner.optimize.objective import priced_tasks
from libra_plan.planner.optimize.solve import solve_problem
from libra_plan.planner.plan import Plan, held_by
from libra_plan.planner.problem import (
    Arrangement,
    Coupling,
    CouplingKind,
    Deadline,
    Policy,
    Problem,
    Quota,
    Role,
    StageOption,
    Task,
)
from libra_plan.planner.verify import violations_of

CLASSES = {"a100": (81_920.0, 1.0), "h100": (81_920.0, 2.0), "h200": (144_384.0, 2.9)}
"""Memory, MiB, and speed of a GPU class."""
BILLIONS = (0.5, 1.5, 3.0, 7.0, 14.0, 32.0, 70.0)
SHARES = (0.06, 0.12, 0.16, 0.28, 0.2, 0.12, 0.06)
MIB_PER_BILLION = {"actor": 18_432.0, "rollout": 2_253.0, "reference": 2_150.0}
WORK = {"actor": 1.0, "rollout": 3.2, "reference": 0.33}
DOUBLED = {"actor": 0.96, "rollout": 0.93, "reference": 0.9}
"""What is left of the efficiency each time the GPUs double."""
REPLICAS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
TEAMS = ("red", "green", "blue")
PRICE = 2.5  # an hour for a GPU
KINDS = (*(policy.value for policy in Policy), "budget", "deadlines", "missed-deadlines", "latency-first")
SEEDS = (11, 12, 13, 14, 15)  # nothing was chosen by these
MOST_KEPT_GAP = 1e-3  # as `libra_plan.solve` has it


# ---------------------------------------------------------------- problems


def problem_of(
    gpus: int, tasks: int, seed: int, kinds: int | None = None, policy: str = "throughput"
) -> Problem:
    """Make a problem: three GPU classes in equal parts, 4 % of the nodes short of one to four of their GPUs.

    Tasks want about twice the GPUs there are. Each is priced on one class or two, with two roles or three.
    """
    rng = np.random.default_rng(seed)
    cluster = _cluster(gpus, rng)
    made = [_kind(rng, gpus / tasks) for _ in range(min(kinds or tasks, tasks))]
    named = tuple(
        replace(
            made[number % len(made)],
            id=f"t{number}",
            weight=float(rng.choice([1, 2, 4])),
            tier=number % 3,
            team=TEAMS[number % 3],
        )
        for number in range(tasks)
    )
    return _asked(Problem(cluster, named), policy)


def _cluster(gpus: int, rng: np.random.Generator) -> Cluster:
    nodes = []
    for number in range(math.ceil(gpus / 8)):
        name = list(CLASSES)[number % len(CLASSES)]
        lost = int(rng.integers(1, 5)) if rng.random() < 0.04 else 0
        cards = tuple(Gpu(GpuId(f"n{number}", at), name, CLASSES[name][0]) for at in range(8 - lost))
        nodes.append(Node(f"n{number}", cards, cpu_cores=192.0, host_memory_mib=8 * 262_144.0))
    return Cluster(f"generated-{gpus}", tuple(nodes))


def _kind(rng: np.random.Generator, room: float) -> Task:
    billions = float(rng.choice(BILLIONS, p=SHARES))
    most = max(2, round(room * float(rng.lognormal(-0.25, 0.6)) * (0.5 + math.sqrt(billions / 10))))
    names = ["rollout", "actor"] + (["reference"] if rng.random() < 0.4 else [])
    seconds = float(rng.uniform(200, 4000)) * math.sqrt(billions / 7)
    able = [str(name) for name in rng.permutation(list(CLASSES))[: 1 if rng.random() < 0.6 else 2]]
    roles = tuple(_role(rng, name, billions, seconds, most, able) for name in names)
    asynchronous = Coupling(CouplingKind.ASYNC, 1)
    coupling = asynchronous if rng.random() < 0.5 else Coupling(CouplingKind.SYNC)
    allowed = frozenset((Arrangement.COLOCATED, Arrangement.SEPARATE))
    return Task("", 1.0, roles, coupling, allowed, restart_s=float(rng.uniform(30, 300)))


def _role(
    rng: np.random.Generator, name: str, billions: float, seconds: float, most: int, able: Sequence[str]
) -> Role:
    options = []
    need = billions * MIB_PER_BILLION[name]
    for gpu_class in able:
        memory, speed = CLASSES[gpu_class]
        sizes = [size for size in (1, 2, 4, 8, 16) if need / size + 4096 <= memory][:2]
        for size in sizes:
            rate = speed * float(rng.uniform(0.9, 1.0))
            kept = DOUBLED[name] * float(rng.uniform(0.96, 1.0))
            layout = Layout(tp=min(size, 8), pp=max(1, size // 8))
            for number in (n for n in REPLICAS if n * size <= max(most, size)):
                gpus = number * size
                time_s = seconds * WORK[name] / (rate * gpus * kept ** math.log2(gpus))
                static = 0.6 * need / size
                options.append(
                    StageOption(
                        gpu_class,
                        layout,
                        number,
                        exactly(time_s, "s", Origin.MEASURED),
                        peak_mib=need / size + 4096,
                        static_mib=static,
                        asleep_mib=512.0,
                        host_static_mib=static,
                        sleep_s=2.0,
                        wake_s=3.0,
                    )
                )
    return Role(name, "train" if name == "actor" else name, tuple(options))


def _asked(problem: Problem, policy: str) -> Problem:
    """Add the settings that a policy needs to some tasks."""
    gpus = len(problem.cluster.gpus)
    if policy in [each.value for each in Policy]:
        quotas = tuple(Quota(team, gpus // 4) for team in TEAMS) if policy == Policy.FAIR_SHARE.value else ()
        return replace(problem, policy=Policy(policy), quotas=quotas)
    if policy == "budget":
        prices = tuple((name, PRICE) for name in CLASSES)
        cluster = replace(problem.cluster, price_per_gpu_hour=prices)
        return replace(problem, cluster=cluster, budget_per_hour=0.7 * PRICE * gpus)
    if policy == "latency-first":
        marked = [replace(each, latency_first=True, max_gpus=24) for each in problem.tasks[::8]]
    else:  # every fourth task wants nearly its fair share's rate, or six times as much
        factor = 6.0 if policy == "missed-deadlines" else 0.9
        references = {each.task.id: each.reference or 1.0 for each in priced_tasks(problem, problem)}
        marked = [
            replace(each, deadline=Deadline(100.0, 100.0 / (factor * references[each.id])))
            for each in problem.tasks[::4]
        ]
    changed = {each.id: each for each in marked}
    return replace(problem, tasks=tuple(changed.get(each.id, each) for each in problem.tasks))


def changed(problem: Problem, seed: int) -> Problem:
    """Let a node fail, and a task like one of the others arrive."""
    rng = np.random.default_rng(seed + 1)
    nodes = problem.cluster.nodes
    lost = int(rng.integers(len(nodes)))
    like = problem.tasks[int(rng.integers(len(problem.tasks)))]
    return replace(
        problem,
        cluster=replace(problem.cluster, nodes=nodes[:lost] + nodes[lost + 1 :]),
        tasks=(*problem.tasks, replace(like, id="arrived")),
    )


# ---------------------------------------------------------------- one measurement


def lines(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Solve and verify; with `--running` again with nothing changed, then after an arrival and a failure."""
    problem = problem_of(options.gpus, options.tasks, options.seed, options.kinds, options.policy)
    plan, line = _measured("fresh", problem, options)
    yield line
    if options.running:
        running = replace(problem, running=held_by(plan))
        yield _measured("unchanged", running, options, plan.certificate.gap)[1]
        yield _measured("arrival and failure", changed(running, options.seed), options)[1]


def _measured(
    run: str, problem: Problem, options: argparse.Namespace, kept_gap: float = 0.0
) -> tuple[Plan, dict[str, Any]]:
    params = SolveParams(
        time_limit_s=options.time_limit,
        gap=options.gap,
        seed=options.seed,
        kept_gap=min(kept_gap, MOST_KEPT_GAP),
    )
    cpu, began = time.process_time(), time.monotonic()
    plan = solve_problem(
        problem, params, clock=time.monotonic if options.wall else time.process_time
    ).require_plan()
    wall, cpu = time.monotonic() - began, time.process_time() - cpu
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    proof = plan.certificate
    cpu_verify = time.process_time()
    violations = 0 if options.unverified else len(violations_of(problem, plan))
    return plan, {
        "run": run,
        "policy": options.policy,
        "gpus": len(problem.cluster.gpus),
        "tasks": len(problem.tasks),
        "seed": options.seed,
        "configurations": sum(map(len, priced_tasks(problem, problem))) if options.count else None,
        "cpu_s": round(cpu, 2),
        "wall_s": round(wall, 2),
        "verify_cpu_s": round(time.process_time() - cpu_verify, 2),
        "objective": proof.objective,
        "bound": proof.bound,
        "gap": proof.gap,
        "widest_pass": max((_gap(each.objective, each.bound) for each in proof.passes), default=None),
        "moved": sum(task.moved for task in plan.running),
        "queued": len(plan.queued),
        "peak_mib": peak_mib,
        "violations": violations,
    }


def _gap(objective: float, bound: float) -> float:
    return abs(bound - objective) / max(abs(objective), 1.0)


# ---------------------------------------------------------------- the page

SIZES = (
    # GPUs, tasks, limit s, gap wanted, goals: gap, seconds, MiB
    (256, 24, 2.0, 1e-4, 2e-4, 2.0, None),
    (1_024, 64, 5.0, 1e-4, 2e-4, 5.0, None),
    (10_000, 400, 10.0, 5e-5, 1e-4, 10.0, 300),
    (100_000, 2_000, 60.0, 5e-4, 1e-3, 60.0, None),
)
GOALS_RUNNING = {"unchanged": (None, 1.0, None), "arrival and failure": (2e-4, 5.0, None)}
HEADER = "| run | GPUs | tasks | CPU s | wall s | gap | tasks moved | peak MiB | goal | rules broken |"


def page(most_gpus: float) -> Iterator[str]:
    """Measure everything up to a size and write the page."""
    yield PAGE_BEGIN.strip()
    yield ""
    yield HEADER
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for gpus, tasks, limit_s, gap, *goal in (each for each in SIZES if each[0] <= most_gpus):
        more = ["--running"] if gpus == 10_000 else []
        found = [_child(gpus, tasks, seed, limit_s, gap, *more) for seed in SEEDS]
        for number, line in enumerate(found[0]):
            wanted = tuple(goal) if number == 0 else GOALS_RUNNING[line["run"]]
            yield _row([each[number] for each in found], wanted)
    yield ""
    if most_gpus >= 10_000:
        yield from _policies()
    yield PAGE_END.strip()


def _policies() -> Iterator[str]:
    yield PAGE_POLICIES.strip()
    yield ""
    yield "| policy | GPUs | tasks | CPU s | wall s | gap | widest pass | waiting | peak MiB | rules broken |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for policy in KINDS:
        (line,) = _child(10_000, 400, SEEDS[0], 30.0, 1e-4, "--policy", policy)
        yield (
            f"| {policy} | {line['gpus']:,} | {line['tasks']} | {line['cpu_s']} | {line['wall_s']} | "
            f"{_percent(line['gap'])} | {_percent(line['widest_pass'])} | {line['queued']} | "
            f"{line['peak_mib']} | {line['violations']} |"
        )
    yield ""


def _child(gpus: int, tasks: int, seed: int, limit_s: float, gap: float, *more: str) -> list[dict[str, Any]]:
    words = ("--gpus", gpus, "--tasks", tasks, "--seed", seed, "--time-limit", limit_s, "--gap", gap, *more)
    command = [sys.executable, str(Path(__file__)), *map(str, words)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    print(said, end="", file=sys.stderr, flush=True)
    return [json.loads(line) for line in said.splitlines()]


def _row(found: Sequence[dict[str, Any]], goal: tuple[float | None, float, int | None]) -> str:
    gap, seconds, mib = goal
    wanted = [f"≤ {_percent(gap)}"] if gap is not None else ["0 moves"]
    wanted += [f"{seconds:g} s"] + ([f"{mib} MiB"] if mib is not None else [])
    first = found[0]
    return (
        f"| {first['run']} | {first['gpus']:,} | {first['tasks']:,} | {_spread(found, 'cpu_s')} | "
        f"{_spread(found, 'wall_s')} | {_spread(found, 'gap', _percent)} | {_spread(found, 'moved')} | "
        f"{max(each['peak_mib'] for each in found)} | {', '.join(wanted)} | "
        f"{sum(each['violations'] for each in found)} |"
    )


def _spread(found: Sequence[dict[str, Any]], name: str, form: Any = lambda value: f"{value:g}") -> str:
    """Tell the median, and from which to which the seeds spread."""
    values = [each[name] for each in found]
    return f"{form(statistics.median(values))} ({form(min(values))} to {form(max(values))})"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.3g} %"


PAGE_BEGIN = """
# Scale: time and gap

`python benchmarks/scale.py --page` prints this page. Every row is a whole solve as `libra-plan solve` does it
once tasks are priced: configurations, choice, placement on GPUs, and reasons for what waits. The plan is
verified after that, outside of the time measured. Every solve is a process with one thread. A figure is the
median of five seeds that nothing was chosen by, with the least and the most of them in brackets. Limits count
CPU seconds of the process, except that HiGHS counts wall seconds.

The problems are generated. There are three GPU classes in equal parts, on nodes of 8 GPUs of which 4 % lack
one to four. Tasks have two or three roles, all in one pool or each in its own, priced on one class or two; no
two are alike, and together they want about twice the GPUs there are. `unchanged` solves again with the plan
running. `arrival and failure` solves after a node is lost and a task has come. The frozen allocation cases of
earlier versions of this page are left out: their roles mix forms on shares of GPUs, which a `Problem` cannot
say.
"""

PAGE_POLICIES = """
## Every policy

10,000 GPUs and 400 tasks, one seed, a limit of 30 s. `widest pass` is the largest gap among the steps of a
policy that settles several things in order.
"""

PAGE_END = """
## A million GPUs

`python benchmarks/scale.py --gpus 1000000 --tasks 20000 --kinds 400 --gap 1e-3 --time-limit 700 --unverified`
measures it.

- **Alike tasks are priced once.** 20,000 tasks of 400 kinds have 400 tables of configurations. What differs
  is a weight, so a task is a row of values over a shared table.
- **Pods are classes.** Constraints count GPUs by class and block size over the whole cluster, so their number
  does not grow with it. Where a task must stay in a pod (an NVLink domain or a building), each pod is a GPU
  class of its own. Tasks are then priced for each pod they may use, and the LP has as many constraints as
  there are pods times sizes.
- **Decomposition.** At the LP's dual prices every task is priced on its own. The LP knows few configurations
  of each task, and gets more as long as they are worth more than they cost. What is left to choose concerns
  the tasks that lose least at these prices.
- **What is proven.** The dual prices bound every choice over all configurations, and the verifier adds the
  sum up again. The LP splits a handful of tasks; with 20,000 of them that is far below 0.1 % of the sum, so
  rounding is enough.
- **Placement** counts blocks node by node with arrays. Each block looks at all nodes, which takes most of the
  time.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="measure everything and print the page")
    parser.add_argument(
        "--most-gpus", type=float, default=math.inf, help="with --page: leave larger sizes out"
    )
    parser.add_argument("--gpus", type=int, default=1024)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--kinds", type=int, help="kinds of tasks; as many as tasks unless given")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", choices=KINDS, default="throughput")
    parser.add_argument("--running", action="store_true", help="plan again with the plan running")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--gap", type=float, default=1e-4)
    parser.add_argument("--wall", action="store_true", help="limits count wall seconds")
    parser.add_argument("--unverified", action="store_true", help="do not verify plans")
    parser.add_argument("--count", action="store_true", help="count configurations, outside of the time")
    options = parser.parse_args()
    if options.page:
        for text in page(options.most_gpus):
            print(text, flush=True)
        return
    for line in lines(options):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
