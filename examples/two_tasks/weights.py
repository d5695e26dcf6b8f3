"""Hand weights from the trainer to generators of the same node through shared memory."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch
from torch import nn

__all__ = ["SharedWeights"]


class SharedWeights:
    """Two buffers of bf16 weights, written in turn: one is read while the other is written.

    Name a folder in `/dev/shm`: its pages can be pinned, and copies then run at the speed of the link.
    """

    def __init__(self, folder: Path, decoder: nn.Module) -> None:
        numbers = sum(parameter.numel() for parameter in decoder.parameters())
        self.buffers = [
            torch.from_file(
                str(folder / f"weights-{turn}.bin"), shared=True, size=numbers, dtype=torch.bfloat16
            )
            for turn in range(2)
        ]
        if torch.cuda.is_available():
            for buffer in self.buffers:
                _pin(buffer)

    @torch.no_grad()
    def put(self, decoder: nn.Module, version: int) -> None:
        """Write the weights of a version."""
        at = 0
        for parameter in decoder.parameters():
            part = self.buffers[version % 2][at : at + parameter.numel()]
            part.copy_(parameter.to(torch.bfloat16).flatten(), non_blocking=True)
            at += parameter.numel()
        self._wait()

    @torch.no_grad()
    def get(self, decoder: nn.Module, version: int) -> None:
        """Read the weights of a version into a decoder."""
        at = 0
        for parameter in decoder.parameters():
            part = self.buffers[version % 2][at : at + parameter.numel()]
            parameter.copy_(part.view_as(parameter), non_blocking=True)
            at += parameter.numel()
        self._wait()

    @staticmethod
    def _wait() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()


def _pin(buffer: torch.Tensor) -> None:
    """Let the GPU read and write a buffer by itself; where that is refused, copies are slower."""
    cudart = torch.cuda.cudart()
    if cudart.cudaHostRegister(buffer.data_ptr(), buffer.nbytes, 0) == cudart.cudaError.success:
        return
    print("weights.py: the shared buffers cannot be pinned; handing weights over takes longer", flush=True)
    with contextlib.suppress(RuntimeError):
        torch.ones(1, device="cuda").add_(1)  # a refused call is told to whatever is launched next
