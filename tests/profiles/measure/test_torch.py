"""The real workloads on a CPU with a tiny model: the same code that runs on a GPU, without the graph."""

import json
from pathlib import Path
from typing import Any

import pytest

from libra_plan.errors import InputError
from libra_plan.profiles.catalog import load_profile
from libra_plan.profiles.measure import torch_works
from libra_plan.profiles.measure.architecture import Architecture
from libra_plan.profiles.measure.measure import measure_profile
from libra_plan.profiles.measure.plan import PlannedPoint
from libra_plan.profiles.measure.torch_backend import TorchBackend

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.4")

TINY: dict[str, object] = {
    "model_type": "qwen2",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 256,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
}
POINT = PlannedPoint(2, 12)


def test_a_transformers_with_another_cache_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 5.3 the decode step would fail on every point, after minutes of building."""
    monkeypatch.setattr("transformers.__version__", "5.3.0")
    with pytest.raises(InputError, match=r"got 5\.3\.0; allowed: transformers 5\.4"):
        TorchBackend(Architecture("tiny", TINY, "0" * 64), device="cpu")


@pytest.fixture
def backend() -> TorchBackend:
    return TorchBackend(Architecture("tiny", TINY, "0" * 64), device="cpu", seed=3)


def test_score_gives_the_log_probabilities_of_the_tokens(
    backend: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against one log-softmax over everything; chunks must neither overlap nor leave gaps."""
    monkeypatch.setattr(torch_works, "CHUNK_TOKENS", 5)
    work = backend.work("score")
    work.prepare(POINT)()
    tokens, out = work._held
    with torch.no_grad():
        logits = work.model(input_ids=tokens, use_cache=False).logits.float()
    expected = torch.log_softmax(logits, -1).gather(2, tokens.unsqueeze(2)).flatten()
    torch.testing.assert_close(out, expected, atol=0.02, rtol=0.02)


def test_train_moves_every_weight_and_keeps_them_finite(backend: TorchBackend) -> None:
    """An optimizer step that skips parameters or explodes would be timed for nothing."""
    work = backend.work("train")
    before = {name: value.detach().clone() for name, value in work.model.named_parameters()}
    step = work.prepare(POINT)
    for _ in range(3):
        step()
    for name, value in work.model.named_parameters():
        assert value.dtype == torch.float32
        assert torch.isfinite(value).all()
        assert not torch.equal(value, before[name]), name


def test_train_gradients_do_not_depend_on_chunks_or_recompute(
    backend: TorchBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss in chunks with recompute is the plain mean cross entropy."""
    monkeypatch.setattr(torch_works, "CHUNK_TOKENS", 7)
    work = backend.work("train")
    work.autocast = False  # type: ignore[attr-defined]
    held: dict[str, Any] = {}
    step = work.prepare(POINT)
    tokens, labels, optimizer = work._held
    monkeypatch.setattr(optimizer, "step", lambda: held.update(gradients(work.model)))
    step()
    logits = work.model(input_ids=tokens, use_cache=False).logits.flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, labels).backward()
    for name, expected in gradients(work.model).items():
        torch.testing.assert_close(held[name], expected, atol=1e-5, rtol=1e-3)


def test_an_accumulated_step_has_the_gradients_of_one_batch_twice_as_large(backend: TorchBackend) -> None:
    """Gradients must stand when the second micro-batch begins: that is what is measured."""
    work = backend.work("train-accumulated")
    work.autocast = False  # type: ignore[attr-defined]
    held: dict[str, Any] = {}
    seen: list[bool] = []
    step = work.prepare(POINT)
    tokens, labels, optimizer = work._held
    begin = work._accumulate  # type: ignore[attr-defined]
    work._accumulate = lambda *parts: (  # type: ignore[attr-defined]
        seen.append(next(work.model.parameters()).grad is not None),
        begin(*parts),
    )
    optimizer.step = lambda: held.update(gradients(work.model))
    step()
    assert work.passes == 2
    assert seen == [False, True]
    logits = work.model(input_ids=tokens, use_cache=False).logits.flatten(0, 1)
    torch.nn.functional.cross_entropy(logits, labels).backward()
    for name, expected in gradients(work.model).items():
        torch.testing.assert_close(held[name], expected, atol=1e-5, rtol=1e-3)
    assert backend.setup("train-accumulated")["software"]["flags"]["micro_batches"] == 2  # type: ignore[index]


def gradients(model: Any) -> dict[str, Any]:
    return {name: value.grad.detach().clone() for name, value in model.named_parameters()}


@pytest.mark.parametrize("name", ["decode", "decode-gqa"])
def test_decode_repeats_the_last_step_of_a_full_context(backend: TorchBackend, name: str) -> None:
    """Every step must attend to the whole cache and leave it as it was, or repeats would differ."""
    work = backend.work(name)
    step = work.prepare(POINT)
    cache, _, position, chosen = work._held
    assert position.item() == POINT.seq_len_tokens - 1
    assert cache.layers[0].keys.shape == (2, 2, 12, 8)
    step()
    keys, first = cache.layers[0].keys.clone(), chosen.clone()
    step()
    assert torch.equal(chosen, first)
    assert torch.equal(cache.layers[0].keys, keys)
    assert {int(layer.cumulative_length) for layer in cache.layers} == {11}


def test_decode_without_a_mask_chooses_the_same_tokens(backend: TorchBackend) -> None:
    """At a full context nothing is masked, so the faster kernel computes the same."""
    chosen = []
    for name in ("decode", "decode-gqa"):
        work = backend.work(name)
        torch.manual_seed(5)
        work.prepare(POINT)()
        chosen.append(work._held[3].tolist())
    assert chosen[0] == chosen[1]


def test_decode_without_a_mask_is_refused_for_sliding_windows() -> None:
    """There a full cache is not attended to in full."""
    config = TINY | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    backend = TorchBackend(Architecture("tiny", config, "0" * 64), device="cpu")
    with pytest.raises(InputError, match="only right for full attention"):
        backend.work("decode-gqa")


def test_out_of_memory_is_seen_through_the_error_of_a_failed_capture(backend: TorchBackend) -> None:
    """Leaving a graph capture raises another error over the first; it is still out of memory."""
    work = backend.work("score")

    def step() -> None:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        except RuntimeError:
            raise RuntimeError("operation failed due to a previous error during capture")  # noqa: B904

    work._prepare = lambda point: step()  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(torch_works.OutOfDeviceMemory):
        work.prepare(POINT)
    work._prepare = lambda point: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(ZeroDivisionError):
        work.prepare(POINT)


def test_the_whole_way_on_a_cpu(tmp_path: Path) -> None:
    """From a config.json to profiles that load, every kind of work, parameters counted once if tied."""
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    phases = ("decode", "decode-gqa", "score", "train", "train-accumulated")
    report = measure_profile(
        str(tmp_path / "config.json"),
        tmp_path / "out",
        phases,
        plan=dict.fromkeys(phases, (POINT, PlannedPoint(1, 16))),
        warmup=1,
        repeats=2,
        device="cpu",
    )
    profiles = [load_profile(folder) for folder in report.folders]
    assert [profile.file.phase for profile in profiles] == ["decode", "decode", "score", "train", "train"]
    assert report.complete
    layer = (32 * 32 + 32) + 2 * (32 * 16 + 16) + 32 * 32 + 3 * 32 * 64 + 2 * 32
    assert profiles[0].file.model.params == 96 * 32 + 2 * layer + 32
    assert profiles[0].file.software.mode == "eager"
    assert profiles[3].file.software.precision == "fp32-master/bf16"
