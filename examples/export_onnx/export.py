"""Export the weights of a trainer's last complete checkpoint to ONNX and check them against torch.

    python examples/export_onnx/export.py two-tasks-run/checkpoints/train --out decoder.onnx

The step after a task's last hand-over: the optimizer's state stays behind, batch and sequence length
become dynamic axes, and ONNX Runtime must give what torch gives at shapes the export never saw.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

import libra_plan

sys.path.append(str(Path(__file__).resolve().parents[1] / "two_tasks"))
from model import Decoder, Size

CHECKED = [(1, 1), (1, 7), (3, 64), (5, 17), (2, 160)]  # batch × tokens; exported with others
EXPORTED_WITH = (2, 8)
LARGEST_INSIDE_BYTES = 1.9e9  # an ONNX file is a protobuf, which ends at 2 GiB: weights then lie beside it
LARGEST_DIFFERENCE = 1e-4  # of a logit; fp32 sums in another order differ by some 1e-6


class Scorer(nn.Module):
    """What is exported: tokens (batch × sequence) in, logits (batch × sequence × vocabulary) out."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder.logits(self.decoder(tokens))


def loaded(folder: Path) -> tuple[Scorer, int, int]:
    """Read the newest complete checkpoint; give the model, its step and the bytes left behind."""
    newest = libra_plan.latest_complete(folder)
    if newest is None:
        sys.exit(f"there is no complete checkpoint in {folder}: name the task's checkpoint_dir")
    state = torch.load(newest.folder / "model.pt", map_location="cpu")
    decoder = Decoder(Size(**state["size"]))
    decoder.load_state_dict(state["model"])
    left_behind = (newest.folder / "optimizer.pt").stat().st_size
    return Scorer(decoder).eval(), newest.step, left_behind


def export(scorer: Scorer, path: Path) -> None:
    """Write the ONNX file, its weights inside where they fit, and let onnx check it."""
    import onnx

    size_bytes = sum(each.nbytes for each in scorer.parameters())
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of libraries that are not needed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about torch
        torch.onnx.export(
            scorer,
            (tokens_of(scorer, EXPORTED_WITH),),
            str(path),
            input_names=["tokens"],
            output_names=["logits"],
            dynamic_shapes={"tokens": axes},
            dynamo=True,
            external_data=size_bytes > LARGEST_INSIDE_BYTES,
            verbose=False,
        )
    onnx.checker.check_model(str(path), full_check=True)


def tokens_of(scorer: Scorer, shape: tuple[int, int]) -> Tensor:
    """Draw tokens, the same for a shape each time."""
    generator = torch.Generator().manual_seed(shape[0] * 1000 + shape[1])
    return torch.randint(0, scorer.decoder.size.vocab, shape, generator=generator)


@torch.no_grad()
def differences(scorer: Scorer, path: Path) -> dict[str, float]:
    """Return the largest difference of a logit between ONNX Runtime and torch, by shape."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = {}
    for shape in CHECKED:
        tokens = tokens_of(scorer, shape)
        (logits,) = session.run(["logits"], {"tokens": tokens.numpy()})
        found[f"{shape[0]}x{shape[1]}"] = float((torch.from_numpy(logits) - scorer(tokens)).abs().max())
    return found


def main() -> int:
    """Export and check; the status is 1 when ONNX Runtime gives something else."""
    parser = argparse.ArgumentParser(description="Export a trainer's last checkpoint to ONNX and check it.")
    parser.add_argument("checkpoints", type=Path, help="the task's checkpoint_dir")
    parser.add_argument("--out", type=Path, default=Path("decoder.onnx"), help="file to write")
    given = parser.parse_args()
    scorer, step, left_behind = loaded(given.checkpoints)
    export(scorer, given.out)
    found = differences(scorer, given.out)
    words = {
        "step": step,
        "params": sum(each.numel() for each in scorer.parameters()),
        "onnx_bytes": given.out.stat().st_size,
        "optimizer_bytes_left_behind": left_behind,
        "largest_difference": found,
    }
    print(json.dumps(words, indent=1))
    return 0 if max(found.values()) <= LARGEST_DIFFERENCE else 1


if __name__ == "__main__":
    sys.exit(main())
