"""A tiny training loop for tests of hand-overs: it counts steps, saves, and locks the GPUs it was given.

    python handover_trainer.py FOLDER [dies|deaf|shares]

Two processes that were given one GPU cannot both lock it: the second writes `double`. `deaf` ignores
requests, and a file `deaf` in the folder makes all do so; `dies` fails at once; those that `share` a
GPU may lock it together.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

import libra_plan

FOLDER = Path(sys.argv[1])
TASK, ROLE = os.environ["LIBRA_PLAN_TASK"], os.environ["LIBRA_PLAN_ROLE"]
GPUS = [int(index) for index in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if index]
RANK = os.environ.get("RANK")
if RANK is not None:
    GPUS = [GPUS[int(RANK)]]
STEP_S = 0.01
EVERY = 15


def write(event: str, **more: object) -> None:
    entry = {
        "event": event,
        "task": TASK,
        "role": ROLE,
        "generation": int(os.environ["LIBRA_PLAN_GENERATION"]),
        "gpus": GPUS,
        "pid": os.getpid(),
        **more,
    }
    handle = os.open(FOLDER / "events.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, json.dumps(entry).encode() + b"\n")
    os.close(handle)


def lock(gpu: int) -> object:
    """Take a GPU; whoever only looks whether it is taken holds it for a moment."""
    file = (FOLDER / f"gpu-{gpu}.lock").open("ab")
    for _ in range(100):
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if "shares" in sys.argv else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return file
    write("double", gpu=gpu)
    sys.exit(9)


def ended(*_: object) -> None:
    write("end")
    os._exit(0)


def save(step: int) -> None:
    (libra_plan.step_folder(step) / "state.json").write_text(json.dumps(step))
    libra_plan.save_complete(step, ["state.json"])
    write("saved", step=step)


def train() -> None:
    newest = libra_plan.latest_complete()
    step = 0 if newest is None else json.loads((newest.folder / "state.json").read_text())
    write("begin", step=step)
    libra_plan.report("loaded")
    while True:
        time.sleep(STEP_S)
        step += 1
        libra_plan.report("warm")
        deaf = "deaf" in sys.argv or (FOLDER / "deaf").exists()
        if not deaf and libra_plan.checkpoint_requested():
            save(step)
            libra_plan.await_release(poll_s=0.02)
        elif step % EVERY == 0:
            save(step)


def main() -> None:
    signal.signal(signal.SIGTERM, ended)
    libra_plan.report("loading")
    if "dies" in sys.argv:
        print("ValueError: no such model", file=sys.stderr, flush=True)
        sys.exit(7)
    locks = [lock(gpu) for gpu in GPUS]
    if ROLE != "rollout" and RANK in (None, "0"):
        train()
    write("begin")
    libra_plan.report("warm")
    while locks:
        time.sleep(60)


if __name__ == "__main__":
    main()
