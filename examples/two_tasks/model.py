"""A decoder as Qwen2.5 is built (grouped-query attention, rotary positions, SwiGLU), from random weights.

Plain torch, so that the example needs nothing else. What it computes, and in which precision, is
what the shipped `h200b-qwen2.5-*` profiles measured; `tiny` runs on a laptop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

__all__ = ["SIZES", "Cache", "Decoder", "Loss", "Size"]

CHUNK_TOKENS = 4096  # the loss is taken in chunks: all logits at once would be gigabytes
NORM_EPS = 1e-6


@dataclass(frozen=True)
class Size:
    """The dimensions of a decoder."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    rope_theta: float = 1e6

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


SIZES = {
    "tiny": Size(layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=256),
    "qwen2.5-0.5b": Size(layers=24, hidden=896, heads=14, kv_heads=2, ffn=4864, vocab=151936),
    "qwen2.5-1.5b": Size(layers=28, hidden=1536, heads=12, kv_heads=2, ffn=8960, vocab=151936),
}


class Cache:
    """Keys and values of every layer for a batch, with room for `tokens` positions."""

    def __init__(self, size: Size, batch: int, tokens: int, like: Tensor) -> None:
        shape = (size.layers, 2, batch, size.kv_heads, tokens, size.head_dim)
        self.state = torch.zeros(shape, dtype=like.dtype, device=like.device)

    def rows(self, first: int, last: int) -> Cache:
        """Return the part of some of the sequences; it shares the memory."""
        part = object.__new__(Cache)
        part.state = self.state[:, :, first:last]
        return part


class Norm(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + NORM_EPS)
        return self.weight * wide.to(x.dtype)


class Layer(nn.Module):
    def __init__(self, size: Size, number: int) -> None:
        super().__init__()
        self.size, self.number = size, number
        hidden, head = size.hidden, size.head_dim
        self.before, self.between = Norm(hidden), Norm(hidden)
        self.q = nn.Linear(hidden, size.heads * head)
        self.k = nn.Linear(hidden, size.kv_heads * head)
        self.v = nn.Linear(hidden, size.kv_heads * head)
        self.o = nn.Linear(size.heads * head, hidden, bias=False)
        self.gate = nn.Linear(hidden, size.ffn, bias=False)
        self.up = nn.Linear(hidden, size.ffn, bias=False)
        self.down = nn.Linear(size.ffn, hidden, bias=False)

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None, start: int) -> Tensor:
        x = x + self._attention(self.before(x), turn, cache, start)
        y = self.between(x)
        return x + self.down(silu(self.gate(y)) * self.up(y))

    def _attention(self, x: Tensor, turn: tuple[Tensor, Tensor], cache: Cache | None, start: int) -> Tensor:
        head = self.size.head_dim
        q, k, v = (part(x).unflatten(-1, (-1, head)).transpose(1, 2) for part in (self.q, self.k, self.v))
        q, k = _turned(q, *turn), _turned(k, *turn)
        if cache is not None:
            end = start + x.shape[1]
            keys, values = cache.state[self.number]
            keys[:, :, start:end], values[:, :, start:end] = k, v
            k, v = keys[:, :, :end], values[:, :, :end]
        # One new token attends to all before it; several at once start at position 0 and are causal.
        is_causal = cache is None or x.shape[1] > 1
        out = scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=True)
        return self.o(out.transpose(1, 2).flatten(2))


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, two = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-two, one), dim=-1) * sin


class Decoder(nn.Module):
    """Hidden states of tokens; the head shares the embedding's weights."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.embed = nn.Embedding(size.vocab, size.hidden)
        self.layers = nn.ModuleList(Layer(size, number) for number in range(size.layers))
        self.norm = Norm(size.hidden)
        even = torch.arange(0, size.head_dim, 2, dtype=torch.float32)
        self.frequency = size.rope_theta ** (-even / size.head_dim)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, cache: Cache | None = None, start: int = 0) -> Tensor:
        """Return the last hidden states; `start` is the position of the first token in the cache."""
        x = self.embed(tokens)
        turn = self._turn(tokens.shape[1], start, x)
        for layer in self.layers:
            if self.training:
                x = checkpoint(layer, x, turn, None, 0, use_reentrant=False)
            else:
                x = layer(x, turn, cache, start)
        return self.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return linear(hidden, self.embed.weight)

    def _turn(self, tokens: int, start: int, like: Tensor) -> tuple[Tensor, Tensor]:
        at = torch.arange(start, start + tokens, dtype=torch.float32, device=like.device)
        angle = torch.outer(at, self.frequency).repeat(1, 2)
        return angle.cos().to(like.dtype), angle.sin().to(like.dtype)


class Loss(nn.Module):
    """The mean loss of the next token, recomputed in the backward pass instead of kept."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss; `labels` are the tokens that come next."""
        hidden, labels = self.decoder(tokens).flatten(0, 1), labels.flatten()
        loss: Any = torch.zeros((), device=tokens.device)
        for first in range(0, len(labels), CHUNK_TOKENS):
            part = slice(first, first + CHUNK_TOKENS)
            loss = loss + checkpoint(self._chunk, hidden[part], labels[part], use_reentrant=False)
        return loss / len(labels)

    def _chunk(self, hidden: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.decoder.logits(hidden).float(), labels, reduction="sum")
