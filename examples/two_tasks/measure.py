"""Time a training step and a decode step of the tiny model with every slot at work.

    torchrun --standalone --nproc-per-node 4 measure.py --out measured.json

A slot is one rank of this machine. Where slots outnumber cores, a step takes longer when its
neighbours work, and in the plan they do: so all ranks measure at once. Data-parallel steps are
measured with the slots cut into groups of so many ranks.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from generator import Generator
from ranks import Ranks, joined
from trainer import Trainer

SAMPLES, TOKENS = 24, 64  # of a training step (workload.yaml)
# Sequences × tokens; a full micro-batch as one sequence, too: so the planner asks for its memory.
TRAIN = [(6, 64), (8, 64), (12, 64), (24, 64), (8, 32), (24, 32), (12, 128), (1, SAMPLES * TOKENS)]
# Sequences × context.
DECODE = [(batch, context) for context in (16, 24, 32, 48) for batch in (4, 8, 16)]
POINT_S = 0.2
WINDOWS = 2


def main() -> None:
    """Measure on all ranks and write what the slowest of them saw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    with joined(gradients=True) as ranks:
        points = {"train": _training(ranks), "decode": _decoding(ranks), "gib_per_s": _link_gib_per_s(ranks)}
        if ranks.rank == 0:
            given.out.write_text(json.dumps(points))


def _training(ranks: Ranks) -> list[dict[str, float]]:
    alone = Trainer("tiny", ranks.device)
    points = []
    for sequences, tokens in TRAIN:
        words = {"batch_sequences": sequences, "seq_len_tokens": tokens, "dp": 1}
        points.append(words | _timed(ranks, lambda s=sequences, t=tokens: alone.step(0, s, t, s * t)))
    for dp in range(2, ranks.world + 1):
        groups = [dist.new_group(list(range(at, at + dp))) for at in range(0, ranks.world - dp + 1, dp)]
        sequences = SAMPLES // dp
        if ranks.rank // dp < len(groups):
            together = Trainer("tiny", ranks.device, groups[ranks.rank // dp], dp)
        else:
            together = alone  # too few are left for a group: keep the slot at work
        points.append(
            {"batch_sequences": sequences, "seq_len_tokens": TOKENS, "dp": dp}
            | _timed(ranks, lambda s=sequences, t=together: t.step(0, s, TOKENS, s * TOKENS))
        )
    return points


def _decoding(ranks: Ranks) -> list[dict[str, float]]:
    points = []
    for sequences, context in DECODE:
        generator = Generator("tiny", ranks.device, sequences, context - 1, 1)
        with torch.no_grad():
            timed = _timed(ranks, lambda g=generator, s=sequences, c=context: g._decode(c - 1, s))
        points.append({"batch_sequences": sequences, "seq_len_tokens": context} | timed)
    return points


def _timed(ranks: Ranks, step: Callable[[], object]) -> dict[str, float]:
    """Repeat a step on all ranks for a while, twice; give the better mean of the slowest rank.

    Not the median: a step is shorter than what a busy core gives a process at a time, so most steps
    run undisturbed and a few wait long.
    """
    step()
    ranks.together()
    began_s = time.perf_counter()
    step()
    once_s = max(_gathered(ranks, time.perf_counter() - began_s))
    repeats = max(int(POINT_S / once_s), 2)
    means = []
    for _ in range(WINDOWS):
        ranks.together()
        began_s = time.perf_counter()
        for _ in range(repeats):
            step()
        means.append(max(_gathered(ranks, (time.perf_counter() - began_s) / repeats)))
    resident_mib = max(_gathered(ranks, _resident_mib()))
    return {"repeats": repeats * WINDOWS, "time_s": min(means), "peak_reserved_mib": resident_mib}


def _link_gib_per_s(ranks: Ranks) -> float:
    """Measure an all-reduce: the rate at which each rank passes gradients on."""
    gradients = torch.zeros(2**20)
    timed = _timed(ranks, lambda: dist.all_reduce(gradients))
    passed_on = 2 * (ranks.world - 1) / ranks.world * gradients.nbytes
    return passed_on / 2**30 / timed["time_s"]


def _gathered(ranks: Ranks, value: object) -> list:
    found: list = [None] * ranks.world
    dist.all_gather_object(found, value, group=ranks.control)
    return found


def _resident_mib() -> float:
    """Return the memory of this process: what a slot has of the machine's."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 2**20, 1)


if __name__ == "__main__":
    main()
