"""The ONNX example on a real checkpoint: what is exported is what was trained, at every shape."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = [pytest.mark.torch, pytest.mark.slow]
for name in ("torch", "onnx", "onnxruntime", "onnxscript"):
    pytest.importorskip(name)


def run(*words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with the example's modules in reach."""
    paths = [str(EXAMPLES / "two_tasks"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "LIBRA_PLAN_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which a trainer has saved its steps 3 and 6."""
    folder = tmp_path_factory.mktemp("trained")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 1, "-m", "trainer")
    done = run(*launcher, "--steps", 6, "--save-every", 3, "--samples", 4, "--tokens", 16, folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_onnx_runtime_computes_what_torch_computes(trained: Path) -> None:
    """Batch and sequence are dynamic: the checked shapes are none that the export saw."""
    done = run(EXAMPLES / "export_onnx" / "export.py", "checkpoints", "--out", "a.onnx", folder=trained)
    assert done.returncode == 0, done.stdout + done.stderr
    words = json.loads(done.stdout)
    assert words["step"] == 6
    assert len(words["largest_difference"]) == 5
    assert 0 < max(words["largest_difference"].values()) < 1e-4

    import onnx

    model = onnx.load(trained / "a.onnx")
    axes = [each.dim_param for each in model.graph.input[0].type.tensor_type.shape.dim]
    assert axes == ["batch", "sequence"]
    sizes = [each.dims for each in model.graph.initializer]
    weights = sum(_product(dims) for dims in sizes if len(dims) > 0)
    assert words["params"] <= weights < 1.1 * words["params"], "more than weights was exported"


def _product(dims: list[int]) -> int:
    result = 1
    for each in dims:
        result *= each
    return result


def test_weights_of_another_step_are_told_from_the_exported_ones(trained: Path) -> None:
    """The comparison must be able to fail: after three more steps the logits are others."""
    script = f"""
import sys; sys.path.insert(0, {str(EXAMPLES / "export_onnx")!r})
from pathlib import Path
import torch, export
scorer, step, _ = export.loaded(Path("checkpoints"))
export.export(scorer, Path("b.onnx"))
earlier = torch.load("checkpoints/step-000000003/model.pt")
scorer.decoder.load_state_dict(earlier["model"])
print(min(export.differences(scorer, Path("b.onnx")).values()) > export.LARGEST_DIFFERENCE)
"""
    done = run("-c", script, folder=trained)
    assert done.stdout.strip() == "True", done.stderr


def test_an_unfinished_checkpoint_is_not_exported(trained: Path) -> None:
    """A save that was cut short leaves a file of the wrong size; the one before it counts."""
    model = trained / "checkpoints" / "step-000000006" / "model.pt"
    whole = model.read_bytes()
    model.write_bytes(whole[:-1])
    try:
        done = run(EXAMPLES / "export_onnx" / "export.py", "checkpoints", "--out", "c.onnx", folder=trained)
    finally:
        model.write_bytes(whole)
    assert json.loads(done.stdout)["step"] == 3
