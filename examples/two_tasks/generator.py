"""Generate responses in batches with a KV cache, from the newest weights of the trainer.

Run by torchrun; every rank is a replica with its share of the samples. With `--turns FOLDER` it is
the rollout of an RL step, at most `--ahead` steps before the trainer.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from model import SIZES, Cache, Decoder
from ranks import Counter, Ranks, Turns, joined
from weights import SharedWeights

import libra_plan

__all__ = ["Generator", "main"]

PREFILL_TOKENS = 2048  # of prompts that are read at once: more would take more memory than decoding does


class Generator:
    """A decoder with room for a batch of sequences; on a GPU its decode steps are CUDA graphs."""

    def __init__(self, size: str, device: torch.device, batch: int, prompt_tokens: int, tokens: int) -> None:
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16 if device.type == "cuda" else torch.float32)
        with device:
            self.decoder = Decoder(SIZES[size]).eval().requires_grad_(False)
        torch.set_default_dtype(torch.float32)
        self.batch, self.prompt_tokens, self.tokens = batch, prompt_tokens, tokens
        self.cache = Cache(SIZES[size], batch, prompt_tokens + tokens, self.decoder.embed.weight)
        self.newest = torch.zeros((batch, 1), dtype=torch.int64, device=device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        if device.type == "cuda":
            self._capture()

    @torch.no_grad()
    def generate(self, prompts: torch.Tensor) -> torch.Tensor:
        """Return responses (sequences × tokens) to prompts (sequences × prompt tokens)."""
        self._prefill(prompts)
        written = [self.newest[: len(prompts)].clone()]
        for position in range(self.prompt_tokens, self.prompt_tokens + self.tokens - 1):
            if len(prompts) == self.batch and position in self.graphs:
                self.graphs[position].replay()
            else:
                self._decode(position, len(prompts))
            written.append(self.newest[: len(prompts)].clone())
        return torch.cat(written, dim=1)

    def _prefill(self, prompts: torch.Tensor) -> None:
        each = max(PREFILL_TOKENS // self.prompt_tokens, 1)
        for first in range(0, len(prompts), each):
            part = prompts[first : first + each]
            hidden = self.decoder(part, self.cache.rows(first, first + len(part)))
            self.newest[first : first + len(part)] = self._best(hidden)

    def _decode(self, position: int, sequences: int) -> None:
        """Feed the newest token, which stands at `position`, and choose the next."""
        hidden = self.decoder(self.newest[:sequences], self.cache.rows(0, sequences), position)
        self.newest[:sequences].copy_(self._best(hidden))

    def _best(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.decoder.logits(hidden[:, -1]).argmax(dim=-1, keepdim=True)

    @torch.no_grad()
    def _capture(self) -> None:
        """Record a graph for each length: attention over exactly so many positions needs no mask."""
        pool = torch.cuda.graph_pool_handle()
        positions = range(self.prompt_tokens, self.prompt_tokens + self.tokens - 1)
        with torch.cuda.stream(torch.cuda.Stream()):
            for position in positions:  # no kernel may be loaded for the first time while recording
                self._decode(position, self.batch)
            torch.cuda.synchronize()
            for position in positions:
                graph = self.graphs[position] = torch.cuda.CUDAGraph()
                graph.capture_begin(pool, capture_error_mode="thread_local")
                self._decode(position, self.batch)
                graph.capture_end()
        torch.cuda.synchronize()


def main() -> None:
    """Generate until told to stop, or for `--steps`."""
    given = _arguments()
    with joined(gradients=False) as ranks:
        share = ranks.share(given.samples)
        batch = min(share, given.concurrency)
        generator = Generator(given.model, ranks.device, batch, given.prompt_tokens, given.tokens)
        counter = Counter(ranks, given.counts)
        turns = Turns(given.turns, "generator", "trainer") if given.turns else None
        shared = SharedWeights(given.turns, generator.decoder) if turns else None
        newest = libra_plan.latest_complete()
        step = newest.step if newest else 0
        version: object = 0
        last = step + given.steps if given.steps else None
        # Roles that share GPUs take turns: what is ahead would compute beside the trainer.
        ahead = 0 if os.environ.get("LIBRA_PLAN_SHARE_GROUP") else given.ahead
        while step != last and ranks.goes_on(step, _save):
            if turns and not turns.wait(ranks, step - ahead):
                break
            if turns and shared:
                version = _taken(generator, ranks, shared, turns.partner_finished(), version)
            elif given.weights_from:
                version = _loaded(generator, ranks, given.weights_from, version)
            began_s = time.monotonic()
            for first in range(0, share, batch):
                generator.generate(_prompts(generator, ranks, step, min(batch, share - first)))
            if ranks.device.type == "cuda":
                torch.cuda.synchronize()
            ranks.together()
            step += 1
            counter.add(step, given.samples, given.samples * given.tokens, began_s, weights=version)
            libra_plan.report("warm")
            if turns and ranks.rank == 0:
                turns.finished(step)


def _save(folder: Path, step: int) -> None:
    torch.save(step, folder / "steps.pt")


def _prompts(generator: Generator, ranks: Ranks, step: int, sequences: int) -> torch.Tensor:
    """Make prompts that count up from places of their own."""
    rows = torch.arange(sequences, device=ranks.device).unsqueeze(1) + step * 104729 + ranks.rank * 7919
    return (rows + torch.arange(generator.prompt_tokens, device=ranks.device)) % generator.decoder.size.vocab


def _taken(generator: Generator, ranks: Ranks, shared: SharedWeights, newest: int, version: object) -> object:
    newest = int(str(ranks.agreed(newest)))
    if newest not in (0, version):
        shared.get(generator.decoder, newest)
    return newest


def _loaded(generator: Generator, ranks: Ranks, folder: Path, version: object) -> object:
    """Load the trainer's newest complete checkpoint, if it is another than the last."""
    newest = None if ranks.rank else libra_plan.latest_complete(folder)
    step, path = ranks.agreed((newest.step, newest.folder / "model.pt") if newest else (version, None))  # type: ignore[misc]
    if step != version:
        generator.decoder.load_state_dict(torch.load(path, map_location=ranks.device)["model"])
    return step


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=SIZES, default="tiny")
    parser.add_argument("--samples", type=int, default=48, help="of a step, over all ranks")
    parser.add_argument("--prompt-tokens", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=32, help="that a sample generates")
    parser.add_argument("--concurrency", type=int, default=48, help="sequences at once on a rank")
    parser.add_argument("--steps", type=int, help="stop after so many; until told to otherwise")
    parser.add_argument("--counts", type=Path, help="file for a line per step")
    parser.add_argument("--weights-from", type=Path, help="the trainer's checkpoint folder")
    parser.add_argument("--turns", type=Path, help="folder in which it waits for the trainer")
    parser.add_argument("--ahead", type=int, default=0, help="steps it may be ahead of the trainer")
    return parser.parse_args()


if __name__ == "__main__":
    main()
