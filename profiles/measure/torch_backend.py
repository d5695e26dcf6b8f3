"""Build a Hugging Face model with random weights on the local device and hand out its work.

The only module that loads torch and transformers, and only when a backend is made.
"""

from __future__ import annotations

import gc
import os
from importlib import import_module
from typing import Any

from libra_plan.errors import InputError
from libra_plan.profiles.hardware import class_of
from libra_plan.profiles.measure.architecture import Architecture
from libra_plan.profiles.measure.device import cpu_name, read_nvml
from libra_plan.profiles.measure.plan import PHASES
from libra_plan.profiles.measure.torch_works import (
    CHUNK_TOKENS,
    DecodeWork,
    ScoreWork,
    TorchWork,
    TrainWork,
)
from libra_plan.profiles.units import MIB

__all__ = ["TorchBackend"]

# fp32 master weights, gradients and two Adam moments take 16 bytes a parameter; above this share of
# the device's memory training is measured in pure bf16 (8 bytes a parameter) instead.
FP32_STATE_SHARE = 0.5
FP32_STATE_BYTES = 16
ACCUMULATED = 2  # micro-batches of a `train-accumulated` step: the second finds gradients there
OLDEST_TRANSFORMERS = (5, 4)  # from here the static cache keeps its length in a tensor of each layer


def _load(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(
            f"measuring needs {name}", got=error, way_out=f"pip install {name} where the GPU is"
        ) from error


class TorchBackend:
    """One architecture on one device; the model is built once for all works of one precision."""

    def __init__(
        self,
        architecture: Architecture,
        *,
        device: str | None = None,
        seed: int = 0,
        train_precision: str = "auto",
    ) -> None:
        self.torch = _load("torch")
        self.transformers = _load("transformers")
        version = self.transformers.__version__
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_TRANSFORMERS:
            raise InputError(
                "this transformers keeps its static cache in another way",
                got=version,
                allowed="transformers 5.4 or newer",
            )
        self.architecture = architecture
        self.seed = seed
        chosen = device or ("cuda:0" if self.torch.cuda.is_available() else "cpu")
        self.device = self.torch.device(chosen)
        self._nvml = read_nvml(self._uuid())
        self.train_precision = train_precision
        self._built: tuple[str, Any] | None = None
        self._counted: int | None = None

    def _uuid(self) -> str | None:
        if self.device.type != "cuda":
            return None
        uuid = getattr(self.torch.cuda.get_device_properties(self.device), "uuid", None)
        return None if uuid is None else f"GPU-{uuid}"

    def work(self, name: str) -> TorchWork:
        """Build the model in the precision of the work, if it is not there yet, and return the work."""
        precision = self._precision(name)
        if PHASES[name] == "train":
            autocast = precision != "bf16"
            model = self._model("float32" if autocast else "bfloat16", fresh=True)
            passes = ACCUMULATED if name == "train-accumulated" else 1
            return TrainWork(self.torch, model, self.device, autocast=autocast, micro_batches=passes)
        model = self._model("bfloat16").eval()
        if name == "score":
            return ScoreWork(self.torch, model, self.device)
        layer_types = set(getattr(model.config.get_text_config(), "layer_types", None) or ["full_attention"])
        if name == "decode-gqa" and layer_types != {"full_attention"}:
            raise InputError(
                "decode without a mask is only right for full attention",
                got=", ".join(sorted(layer_types)),
                way_out="measure decode instead",
            )
        cache = self.transformers.StaticCache
        return DecodeWork(self.torch, model, self.device, new_cache=cache, masked=name == "decode")

    def _model(self, dtype: str, *, fresh: bool = False) -> Any:
        if self._built is not None and (fresh or self._built[0] != dtype):
            self.close()
        if self._built is None:
            self.torch.manual_seed(self.seed)
            config = self.transformers.AutoConfig.for_model(**self.architecture.config)
            with self.device:
                model = self.transformers.AutoModelForCausalLM.from_config(
                    config, dtype=getattr(self.torch, dtype), attn_implementation="sdpa"
                )
            # A training model carries hooks for recompute: it is never handed to another work.
            self._built = (dtype if not fresh else "train", model)
            # A collection after every point would walk the model's many objects each time.
            gc.collect()
            gc.freeze()
        return self._built[1]

    def close(self) -> None:
        """Drop the model and give its memory back."""
        self._built = None
        gc.unfreeze()
        gc.collect()
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()

    def _precision(self, name: str) -> str:
        if PHASES[name] != "train":
            return "bf16"
        if self.train_precision != "auto":
            return self.train_precision
        total = self._memory_mib()
        states_mib = self._parameters() * FP32_STATE_BYTES / MIB
        return "fp32-master/bf16" if states_mib <= FP32_STATE_SHARE * total else "bf16"

    def _parameters(self) -> int:
        """Count the parameters on a model that is built without memory, once."""
        if self._counted is None:
            config = self.transformers.AutoConfig.for_model(**self.architecture.config)
            with self.torch.device("meta"):
                model = self.transformers.AutoModelForCausalLM.from_config(config)
            self._counted = sum(parameter.numel() for parameter in model.parameters())
        return self._counted

    def _memory_mib(self) -> float:
        """Return what a process can have of the device; the host's memory on a CPU."""
        if self.device.type != "cuda":
            return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / MIB, 1)
        return round(float(self.torch.cuda.get_device_properties(self.device).total_memory) / MIB, 1)

    def setup(self, name: str) -> dict[str, object]:
        """Describe what is measured on what, by the keys of `schema.ProfileFile`."""
        return {
            "phase": PHASES[name],
            "model": self.architecture.shape(self._parameters()),
            "hardware": self._hardware(),
            "software": self._software(name),
            "notes": {
                "nvml_memory_total_mib": self._nvml.memory_total_mib,
                "used_before_mib": self._nvml.memory_used_mib,
                "other_processes": self._nvml.other_processes,
            },
        }

    def _hardware(self) -> dict[str, object]:
        if self.device.type != "cuda":
            return {"gpu_class": "cpu", "memory_mib": self._memory_mib(), "cpu": cpu_name()}
        name = self._nvml.name or self.torch.cuda.get_device_name(self.device)
        return {
            "gpu_class": class_of(name),
            "nvml_name": self._nvml.name,
            "memory_mib": self._memory_mib(),
            "power_limit_w": self._nvml.power_limit_w,
            "mig": bool(self._nvml.mig),
            "driver": self._nvml.driver,
            "cuda": self.torch.version.cuda,
            "cpu": cpu_name(),
        }

    def _software(self, name: str) -> dict[str, object]:
        graph = "cudagraph" if self.device.type == "cuda" else "eager"
        software: dict[str, object] = {
            "framework": "transformers",
            "version": self.transformers.__version__,
            "precision": self._precision(name),
            "torch": str(self.torch.__version__),
            "transformers": self.transformers.__version__,
        }
        flags: dict[str, object] = {"attention": "sdpa", "weights": "random"}
        if name.startswith("decode"):
            masked = name == "decode"
            software["mode"] = graph if masked else f"{graph}-gqa"
            flags |= {"kv_cache": "static", "mask": "causal" if masked else "none"}
        else:
            flags["loss_chunk_tokens"] = CHUNK_TOKENS
        if PHASES[name] == "train":
            software["recompute"] = "full"
            flags["optimizer"] = "fused AdamW"
        if name == "train-accumulated":
            flags["micro_batches"] = ACCUMULATED
        allocator = os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
        if allocator:
            flags["allocator"] = allocator
        return software | {"flags": flags}

    @property
    def exclusive(self) -> bool | None:
        """Whether no other process computed on the GPU at the start; None if unknown."""
        others = self._nvml.other_processes
        return None if others is None else others == 0
