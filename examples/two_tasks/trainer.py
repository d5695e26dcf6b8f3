"""Train a decoder on sequences that count up; data parallel, saved and resumed on any number of ranks.

Run by torchrun. With `--turns FOLDER` it is the trainer of an RL step: it waits for the generator's
samples of the step, trains on as many tokens, and hands its new weights over.
"""

from __future__ import annotations

import argparse
import os
import time
from contextlib import nullcontext
from pathlib import Path

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # as its profile was measured

import torch
from model import SIZES, Decoder, Loss
from ranks import Counter, Ranks, Turns, joined
from torch.nn.parallel import DistributedDataParallel
from weights import SharedWeights

import libra_plan

__all__ = ["Trainer", "main"]

LEARNING_RATE = 3e-4


class Trainer:
    """A decoder, its optimizer, and one step over this rank's share of the samples."""

    def __init__(self, size: str, device: torch.device, group: object = None, world: int = 1) -> None:
        torch.manual_seed(0)
        self.device = device
        with device:
            self.loss = Loss(Decoder(SIZES[size])).train()  # fp32 weights; bf16 arithmetic on a GPU
        self.replica = self.loss
        if world > 1:
            ids = [device] if device.type == "cuda" else None
            self.replica = DistributedDataParallel(
                self.loss, device_ids=ids, process_group=group, gradient_as_bucket_view=True
            )
        self.optimizer = torch.optim.AdamW(self.loss.parameters(), lr=LEARNING_RATE, fused=True)

    def step(self, first: int, samples: int, tokens: int, micro_batch_tokens: int) -> float:
        """Do one optimizer step over samples `first` … in micro-batches; give their mean loss."""
        each = max(micro_batch_tokens // tokens, 1)
        batches = [(at, min(each, samples - at)) for at in range(0, samples, each)]
        total = torch.zeros((), device=self.device)
        for at, number in batches:
            last = at + number == samples
            with nullcontext() if last or self.replica is self.loss else self.replica.no_sync():
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
                    counting = self._counting(first + at, number, tokens + 1)
                    loss = self.replica(counting[:, :-1], counting[:, 1:]) * (number / samples)
                loss.backward()
            total += loss.detach()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(total)

    def _counting(self, first: int, samples: int, tokens: int) -> torch.Tensor:
        vocab = self.loss.decoder.size.vocab
        starts = torch.arange(first, first + samples, device=self.device).unsqueeze(1) * 7919
        return (starts + torch.arange(tokens, device=self.device)) % vocab

    def save(self, folder: Path, step: int) -> None:
        """Write weights, optimizer and step; what all ranks hold alike."""
        state = {"step": step, "size": self.loss.decoder.size.__dict__}
        torch.save({**state, "model": self.loss.decoder.state_dict()}, folder / "model.pt")
        torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")

    def load(self, folder: Path) -> int:
        """Read a checkpoint, whatever number of ranks wrote it; give its step."""
        model = torch.load(folder / "model.pt", map_location=self.device)
        self.loss.decoder.load_state_dict(model["model"])
        self.optimizer.load_state_dict(torch.load(folder / "optimizer.pt", map_location=self.device))
        return int(model["step"])


def main() -> None:
    """Train until told to stop, or for `--steps`."""
    given = _arguments()
    with joined(gradients=True) as ranks:
        trainer = Trainer(given.model, ranks.device, world=ranks.world)
        step = _resumed(trainer)
        counter = Counter(ranks, given.counts)
        turns = Turns(given.turns, "trainer", "generator") if given.turns else None
        shared = SharedWeights(given.turns, trainer.loss.decoder) if turns else None
        last = step + given.steps if given.steps else None
        while step != last and ranks.goes_on(step, trainer.save):
            if turns and not turns.wait(ranks, step + 1):
                break
            began_s = time.monotonic()
            share = ranks.share(given.samples)
            first = (step * ranks.world + ranks.rank) * given.samples
            loss = trainer.step(first, share, given.tokens, given.micro_batch_tokens)
            step += 1
            if step % (given.save_every or step + 1) == 0:
                _save(trainer, ranks, step)
            counter.add(step, given.samples, given.samples * given.tokens, began_s, loss=round(loss, 4))
            libra_plan.report("warm")
            if turns and shared and ranks.rank == 0:
                shared.put(trainer.loss.decoder, step)
                turns.finished(step)


def _resumed(trainer: Trainer) -> int:
    newest = libra_plan.latest_complete()
    if newest is None:
        return 0
    libra_plan.report("loading")
    step = trainer.load(newest.folder)
    libra_plan.report("loaded")
    return step


def _save(trainer: Trainer, ranks: Ranks, step: int) -> None:
    if ranks.rank == 0:
        folder = libra_plan.step_folder(step)
        trainer.save(folder, step)
        libra_plan.save_complete(step, ["model.pt", "optimizer.pt"])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=SIZES, default="tiny")
    parser.add_argument("--samples", type=int, default=12, help="of a step, over all ranks")
    parser.add_argument("--tokens", type=int, default=64, help="of a sample")
    parser.add_argument("--micro-batch-tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, help="stop after so many; until told to otherwise")
    parser.add_argument("--save-every", type=int, help="steps between checkpoints; on request otherwise")
    parser.add_argument("--counts", type=Path, help="file for a line per step")
    parser.add_argument("--turns", type=Path, help="folder in which it waits for the generator")
    return parser.parse_args()


if __name__ == "__main__":
    main()
