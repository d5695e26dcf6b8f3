"""The three kinds of work on a Hugging Face model with random weights: decode, score, train.

Torch and transformers are loaded by `torch_backend`; here `torch` is handed in, so importing this
module needs neither. Method:

- score: one forward without cache; log-probabilities of the tokens, the head in chunks of
  `CHUNK_TOKENS` so that no full fp32 logits exist.
- train: forward and backward with full recompute (gradient checkpointing of every layer and of every
  loss chunk) and a fused AdamW step; fp32 master weights with bf16 autocast, or pure bf16.
- train-accumulated: the same over two micro-batches, of which the second finds the gradients of the
  first; seconds are those of one micro-batch with half the optimizer's.
- decode: one token for every sequence at a full static KV cache, on a GPU as replay of a CUDA graph.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

from libra_plan.profiles.measure.plan import PlannedPoint
from libra_plan.profiles.measure.runner import DeviceMemory, OutOfDeviceMemory
from libra_plan.profiles.units import MIB

__all__ = ["CHUNK_TOKENS", "DecodeWork", "ScoreWork", "TorchWork", "TrainWork"]

CHUNK_TOKENS = 4096
GRAPH_WARMUPS = 2  # eager steps before the capture: lazy libraries must be loaded by then
LEARNING_RATE = 1e-6  # small: random weights must stay finite over the repeats


class TorchWork:
    """What the three kinds share: the device, the peaks, out of memory as an answer."""

    passes = 1

    def __init__(self, torch: Any, model: Any, device: Any) -> None:
        self.torch = torch
        self.model = model
        self.device = device
        self.cuda = device.type == "cuda"
        self.body = model.base_model
        self.head = model.get_output_embeddings()
        self.vocab = int(model.config.get_text_config().vocab_size)
        self._held: list[Any] = []

    def prepare(self, point: PlannedPoint) -> Callable[[], None]:
        """Allocate the point and return one step of it."""
        with self._oom_told():
            step = self._prepare(point)

        def guarded() -> None:
            with self._oom_told():
                step()

        return guarded

    def _prepare(self, point: PlannedPoint) -> Callable[[], None]:
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.cuda:
            with self._oom_told():
                self.torch.cuda.synchronize(self.device)

    def memory(self) -> DeviceMemory:
        """Read the allocator's peaks and the device's use, in MiB; a CPU has none."""
        if not self.cuda:
            return DeviceMemory(None, None, None)
        cuda = self.torch.cuda
        free, total = cuda.mem_get_info(self.device)
        return DeviceMemory(
            round(cuda.max_memory_allocated(self.device) / MIB, 1),
            round(cuda.max_memory_reserved(self.device) / MIB, 1),
            round((total - free) / MIB, 1),
        )

    def reset(self) -> None:
        """Free the last point's tensors, return cached blocks to the device, restart the peaks."""
        self._held.clear()
        self.model.zero_grad(set_to_none=True)
        gc.collect()
        if self.cuda:
            # cuBLAS keeps a workspace of tens of MiB for every stream it saw, graphs' included.
            clear = getattr(self.torch._C, "_cuda_clearCublasWorkspaces", None)
            if clear is not None:
                clear()
            self.torch.cuda.empty_cache()
            self.torch.cuda.reset_peak_memory_stats(self.device)

    @contextlib.contextmanager
    def _oom_told(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if self._is_oom(error):
                raise OutOfDeviceMemory(str(error)) from None
            raise

    def _is_oom(self, error: BaseException | None) -> bool:
        """Check the whole chain of errors: leaving a failed graph capture raises another one."""
        while error is not None:
            text = str(error).lower()
            if isinstance(error, self.torch.OutOfMemoryError) or "out of memory" in text:
                return True
            if "cublas_status_alloc_failed" in text:
                return True
            error = error.__context__
        return False

    def _tokens(self, rows: int, columns: int) -> Any:
        return self.torch.randint(0, self.vocab, (rows, columns), device=self.device)


class ScoreWork(TorchWork):
    """Log-probabilities of given tokens: reference policy, old policy, critic and reward forwards."""

    def _prepare(self, point: PlannedPoint) -> Callable[[], None]:
        tokens = self._tokens(point.batch_sequences, point.seq_len_tokens)
        out = self.torch.empty(point.tokens, dtype=self.torch.float32, device=self.device)
        self._held += [tokens, out]
        return lambda: self._step(tokens, out)

    def _step(self, tokens: Any, out: Any) -> None:
        with self.torch.no_grad():
            hidden = self.body(input_ids=tokens, use_cache=False).last_hidden_state.flatten(0, 1)
            labels = tokens.flatten()
            for first in range(0, len(labels), CHUNK_TOKENS):
                part = slice(first, first + CHUNK_TOKENS)
                out[part] = self._log_probabilities(hidden[part], labels[part])

    def _log_probabilities(self, hidden: Any, labels: Any) -> Any:
        """Keep a chunk's logits in a frame of their own: they are gone before the next chunk's come."""
        logits = self.head(hidden).float()
        return self.torch.log_softmax(logits, dim=-1).gather(1, labels.unsqueeze(1)).squeeze(1)


class TrainWork(TorchWork):
    """One optimizer step over the batch."""

    def __init__(
        self, torch: Any, model: Any, device: Any, *, autocast: bool, micro_batches: int = 1
    ) -> None:
        super().__init__(torch, model, device)
        self.autocast = autocast
        self.passes = micro_batches
        model.train()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def _prepare(self, point: PlannedPoint) -> Callable[[], None]:
        tokens = self._tokens(point.batch_sequences, point.seq_len_tokens)
        labels = self._tokens(point.batch_sequences, point.seq_len_tokens).flatten()
        optimizer = self.torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, fused=True)
        self._held += [tokens, labels, optimizer]
        return lambda: self._step(tokens, labels, optimizer)

    def _step(self, tokens: Any, labels: Any, optimizer: Any) -> None:
        for _ in range(self.passes):
            self._accumulate(tokens, labels)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def _accumulate(self, tokens: Any, labels: Any) -> None:
        """Add a micro-batch's gradients; nothing else of the pass is kept."""
        torch = self.torch
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            hidden = self.body(input_ids=tokens, use_cache=False).last_hidden_state.flatten(0, 1)
            loss = torch.zeros((), device=self.device)
            for first in range(0, len(labels), CHUNK_TOKENS):
                part = slice(first, first + CHUNK_TOKENS)
                loss = loss + torch.utils.checkpoint.checkpoint(
                    self._chunk_loss, hidden[part], labels[part], use_reentrant=False
                )
        (loss / (len(labels) * self.passes)).backward()

    def _chunk_loss(self, hidden: Any, labels: Any) -> Any:
        logits = self.head(hidden).float()
        return self.torch.nn.functional.cross_entropy(logits, labels, reduction="sum")


class DecodeWork(TorchWork):
    """One decode step of every sequence at a full static KV cache of `seq_len_tokens` positions.

    `masked` keeps the causal mask that transformers builds for a static cache, which makes SDPA
    repeat the KV heads in memory; without it the grouped-query flash kernel runs. At a full context
    both attend to every position.
    """

    def __init__(
        self, torch: Any, model: Any, device: Any, *, new_cache: Callable[..., Any], masked: bool
    ) -> None:
        super().__init__(torch, model, device)
        self.new_cache = new_cache
        self.mask = None if masked else {"full_attention": None}
        self._side: Any = torch.cuda.Stream(device) if self.cuda else None  # one, or each would cost memory

    def _prepare(self, point: PlannedPoint) -> Callable[[], None]:
        torch, config = self.torch, self.model.config.get_text_config()
        batch, context = point.batch_sequences, point.seq_len_tokens
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        cache = self.new_cache(config=config, max_cache_len=context)
        cache.early_initialization(batch, config.num_key_value_heads, head_dim, self.model.dtype, self.device)
        for layer in cache.layers:
            layer.keys.normal_()
            layer.values.normal_()
            layer.cumulative_length.fill_(context - 1)
        inputs = self._tokens(batch, 1)
        position = torch.full((1, 1), context - 1, device=self.device)
        chosen = torch.empty(batch, dtype=torch.int64, device=self.device)
        self._held += [cache, inputs, position, chosen]
        lengths = [layer.cumulative_length for layer in cache.layers]

        def step() -> None:
            with torch.no_grad():
                hidden = self.body(
                    input_ids=inputs,
                    position_ids=position,
                    past_key_values=cache,
                    attention_mask=self.mask,
                    use_cache=True,
                ).last_hidden_state
                chosen.copy_(self.head(hidden[:, -1]).argmax(dim=-1))
                torch._foreach_sub_(lengths, 1)  # the next step writes the same, last position again

        return self._captured(step) if self.cuda else step

    def _captured(self, step: Callable[[], None]) -> Callable[[], None]:
        cuda, side = self.torch.cuda, self._side
        side.wait_stream(cuda.current_stream(self.device))
        with cuda.stream(side):
            for _ in range(GRAPH_WARMUPS):
                step()
        cuda.current_stream(self.device).wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph, stream=side):
            step()
        self._held += [graph, step]
        replay: Callable[[], None] = graph.replay
        return replay
