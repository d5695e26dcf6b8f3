"""The architectures that can be measured: a few built in, and any local Hugging Face `config.json`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from libra_plan.errors import ProfileError, Where

__all__ = ["BUILT_IN", "Architecture", "find_architecture"]

_QWEN2_5: dict[str, object] = {
    "model_type": "qwen2",
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "use_sliding_window": False,
}

# The published dimensions of the Qwen2.5 base models (their config.json at Hugging Face, Apache-2.0).
BUILT_IN: Mapping[str, Mapping[str, object]] = {
    "qwen2.5-0.5b": _QWEN2_5
    | {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
    "qwen2.5-1.5b": _QWEN2_5
    | {
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
    "qwen2.5-7b": _QWEN2_5
    | {
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
}


@dataclass(frozen=True)
class Architecture:
    """A transformer to build with random weights: the words of its Hugging Face config."""

    id: str
    config: Mapping[str, object]
    config_sha256: str

    def size(self, key: str) -> int:
        """Return a whole-number dimension, or refuse a config that lacks it."""
        value = self.config.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ProfileError(
                "the model config lacks a dimension that profiles need",
                got=f"{key}: {value!r}",
                allowed="a whole number from 1",
                where=Where(self.id, key=key),
            )
        return value

    @property
    def kv_heads(self) -> int:
        """Count the key and value heads; without the key every head has its own."""
        return self.size(
            "num_key_value_heads" if "num_key_value_heads" in self.config else "num_attention_heads"
        )

    @property
    def head_dim(self) -> int:
        """Return the width of one head; without the key it is hidden / heads."""
        if self.config.get("head_dim") is not None:
            return self.size("head_dim")
        return self.size("hidden_size") // self.size("num_attention_heads")

    @property
    def experts(self) -> int | None:
        """Count the routed experts of a mixture; None for a dense model."""
        for key in ("num_local_experts", "num_experts", "n_routed_experts"):
            if self.config.get(key) is not None:
                return self.size(key)
        return None

    def shape(self, params: int) -> dict[str, object]:
        """Give the fields of `profiles.schema.ModelShape`, with the parameters counted on the built model."""
        return {
            "id": self.id,
            "params": params,
            "layers": self.size("num_hidden_layers"),
            "hidden": self.size("hidden_size"),
            "heads": self.size("num_attention_heads"),
            "kv_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "ffn": self.size("intermediate_size"),
            "vocab": self.size("vocab_size"),
            "experts": self.experts,
            "config_sha256": self.config_sha256,
        }


def find_architecture(model: str) -> Architecture:
    """Return a built-in architecture by name, or read the config.json at a path (file or folder)."""
    built_in = BUILT_IN.get(model.lower())
    if built_in is not None:
        text = json.dumps(built_in, sort_keys=True, separators=(",", ":"))
        return Architecture(model.lower(), dict(built_in), hashlib.sha256(text.encode()).hexdigest())
    path = Path(model)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise ProfileError(
            "no such model",
            got=model,
            allowed=", ".join(BUILT_IN),
            way_out="or give the path of a Hugging Face config.json",
        )
    return _read(path)


def _read(path: Path) -> Architecture:
    raw = path.read_bytes()
    try:
        config = json.loads(raw)
    except ValueError as error:
        raise ProfileError("the model config is not JSON", got=error, where=Where(str(path))) from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ProfileError("the model config names no model_type", where=Where(str(path), key="model_type"))
    stated = config.get("_name_or_path")
    name = stated.rsplit("/", 1)[-1] if isinstance(stated, str) and stated else path.resolve().parent.name
    if path.name != "config.json":
        name = path.stem
    name = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._") or str(config["model_type"])
    return Architecture(name, config, hashlib.sha256(raw).hexdigest())
