"""Recordings of simulated worlds, as counters, trajectories and the simulator itself would write them."""

import json

import msgspec
from sim_worlds import FixedPlacement, hold

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.record import json_lines
from libra_plan.planner.simulate.work import DrawnWork


def run_held(world, seed, *, shared=False, **replicas):
    """Run a world's first task on GPUs of its own, with its stages kept."""
    held = FixedPlacement(hold(world, world.tasks[0].id, shared=shared, **replicas))
    return run_world(world, held, seed, keep_stages=True)


def write_trace(path, record):
    """Write the simulator's own trace."""
    path.write_bytes(b"\n".join(json_lines(record)) + b"\n")
    return path


def write_trajectories(path, task, seed, steps):
    """Write a line per trajectory of the first steps."""
    work = DrawnWork(task, seed)
    with path.open("w") as file:
        for step in range(steps):
            for each in work.step(step).trajectories:
                line = {"step": step, "prompt_tokens": each.prompt, "response_tokens": each.response,
                        "turns": each.turns, "tool_s": each.calls_s}  # fmt: skip
                file.write(json.dumps(line) + "\n")
    return path


def write_counters(folder, world, seed, **replicas):
    """Write what counters of a sync task would: a window per step, role and data-parallel rank."""
    folder.mkdir(exist_ok=True)
    task, record = world.tasks[0], run_held(world, seed, **replicas)
    trained = [each for each in record.stages if each.role == "train"]
    work, ended, lines = DrawnWork(task, seed), 0.0, []
    for done, train in zip(record.steps, trained, strict=False):
        lengths = work.step(done.step)
        rolled_s = train.begun_s - ended
        written = lengths.mean_response * task.samples
        of = {"rollout": (rolled_s, written), "trainer": (train.seconds, done.tokens)}
        for role, (seconds, tokens) in of.items():
            sizes = replicas["rollout" if role == "rollout" else "train"]
            lines += [
                _window(task.id, role, rank, sizes, ended, done.at_s, seconds, tokens, task.samples)
                for rank in range(len(sizes))
            ]
        ended = done.at_s
    (folder / "counter.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def _window(task, role, rank, sizes, start_s, end_s, working_s, tokens, samples):
    return {
        "schema_version": 1, "start_s": start_s, "t_s": end_s, "task": task, "role": role, "dp_rank": rank,
        "rank": rank, "source": f"{role}-{rank}", "clock": "host", "tokens": tokens / len(sizes),
        "samples": samples / len(sizes), "steps": 1, "waiting_s": end_s - start_s - working_s,
        "tp": sizes[rank], "dp": len(sizes),
    }  # fmt: skip


def slower(world, **factors):
    """Return a world whose first task's decoding and training take so many times as long."""
    task = world.tasks[0]
    decode = tuple(
        msgspec.structs.replace(each, **{n: getattr(each, n) * factors.get("decode", 1.0) for n in _DECODE})
        for each in task.costs.decode
    )
    train = msgspec.structs.replace(
        task.costs.train, **{n: getattr(task.costs.train, n) * factors.get("train", 1.0) for n in _TRAIN}
    )
    costs = msgspec.structs.replace(task.costs, decode=decode, train=train)
    return msgspec.structs.replace(world, tasks=(msgspec.structs.replace(task, costs=costs),))


_DECODE = ("fixed_s", "per_sequence_s", "per_token_s", "prefill_s_per_token")
_TRAIN = ("fixed_s", "per_token_s", "per_square_s", "all_reduce_s")
