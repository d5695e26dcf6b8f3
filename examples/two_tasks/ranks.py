"""What both programs do as ranks: join, count, answer requests for a checkpoint, take turns."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

import libra_plan

__all__ = ["Counter", "Ranks", "Turns", "joined"]


class Ranks:
    """The ranks of a role, seen from one of them; rank 0 decides and tells the others."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        cuda = torch.cuda.is_available()
        self.device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if cuda else "cpu")
        if cuda:
            torch.cuda.set_device(self.device)
        self.control = dist.new_group(backend="gloo")  # words between CPUs wait for no GPU
        self.stopped = False
        self._hear()

    def _hear(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def _stop(self, *_: object) -> None:
        self.stopped = True

    def agreed(self, words: object) -> object:
        """Send rank 0's value to every rank."""
        told = [words]
        dist.broadcast_object_list(told, src=0, group=self.control)
        return told[0]

    def together(self) -> None:
        """Wait until all ranks are here."""
        dist.barrier(self.control)

    def share(self, samples: int) -> int:
        """Count this rank's samples of a step; the first ranks take what does not divide."""
        return samples // self.world + (self.rank < samples % self.world)

    def goes_on(self, step: int, save: Callable[[Path, int], None]) -> bool:
        """Save when that is asked for or the program is told to stop; say whether to go on.

        `save` writes the files of a step's checkpoint to a folder; rank 0 alone calls it.
        """
        asked = False if self.rank else libra_plan.checkpoint_requested() is not None
        stopped, asked = self.agreed((self.stopped, asked))  # type: ignore[misc]
        if not (stopped or asked):
            return True
        if self.rank == 0 and os.environ.get("LIBRA_PLAN_CHECKPOINT_DIR"):
            folder = libra_plan.step_folder(step)
            save(folder, step)
            libra_plan.save_complete(step, [path.name for path in folder.glob("*.pt")])
        if stopped:
            return False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # saved: the stop signal may end it while it waits
        if self.rank == 0:
            libra_plan.await_release()
        self.together()
        self._hear()  # the move was called off
        return True


@contextlib.contextmanager
def joined(*, gradients: bool) -> Iterator[Ranks]:
    """Join the ranks that torchrun started, and leave them; `gradients`: GPUs exchange them."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("cpu:gloo,cuda:nccl" if gradients and torch.cuda.is_available() else "gloo")
    try:
        yield Ranks()
    finally:
        dist.destroy_process_group()


class Counter:
    """Counts work in windows, and writes a line per step of the role: work, seconds, memory."""

    def __init__(self, ranks: Ranks, file: Path | None) -> None:
        self.ranks = ranks
        self.file = file or Path(os.environ["LIBRA_PLAN_CHECKPOINT_DIR"]) / "steps.jsonl"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        task, role = os.environ.get("LIBRA_PLAN_TASK"), os.environ.get("LIBRA_PLAN_ROLE")
        self.windows = libra_plan.counter("telemetry", window_s=2.0) if task and role else None
        self.identity = {
            "task": task,
            "role": role,
            "generation": int(os.environ.get("LIBRA_PLAN_GENERATION", "0")),
            "world_size": ranks.world,
        }

    def add(self, step: int, samples: int, tokens: int, began_s: float, **more: object) -> None:
        """Count a step that began at `began_s` on the monotonic clock, which all processes share.

        Each rank counts its share for `libra-plan throughput`; rank 0 writes down the whole step.
        """
        if self.windows is not None:
            share = self.ranks.share(samples)
            self.windows.add(tokens=tokens * share / samples, samples=share, steps=1)
        if self.ranks.rank:
            return
        ended_s = time.monotonic()
        line = {**self.identity, "step": step, "samples": samples, "tokens": tokens, "began_s": began_s}
        line |= {"ended_s": ended_s, "step_s": ended_s - began_s, **more}
        if self.ranks.device.type == "cuda":
            free, total = torch.cuda.mem_get_info()
            line["peak_reserved_mib"] = torch.cuda.max_memory_reserved() / 2**20
            line["device_used_mib"] = (total - free) / 2**20
        with self.file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


class Turns:
    """How two roles of one task wait for each other: each writes how many steps it has finished."""

    def __init__(self, folder: Path, role: str, partner: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.mine, self.theirs = folder / f"{role}.steps", folder / f"{partner}.steps"

    def finished(self, steps: int) -> None:
        """Tell the partner; a reader sees the old number or the new one."""
        beside = self.mine.with_suffix(".tmp")
        beside.write_text(str(steps))
        beside.replace(self.mine)

    def partner_finished(self) -> int:
        """Read how many steps the partner has finished."""
        return int(self.theirs.read_text()) if self.theirs.exists() else 0

    def wait(self, ranks: Ranks, steps: int) -> bool:
        """Wait until the partner has finished so many steps; False when told to stop meanwhile."""
        while ranks.rank == 0 and not ranks.stopped and self.partner_finished() < steps:
            time.sleep(0.001)
        return not ranks.agreed(ranks.stopped)
