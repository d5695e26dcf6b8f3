"""The architectures that can be measured: a few built in, and any local Hugging Face `config.json`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from libra_plan.errors import ProfileError, Where
from libra_plan.profiles.document import read_document
from libra_plan.profiles.model_shapes import sizes_of

__all__ = ["BUILT_IN", "Architecture", "find_architecture"]


def _qwen2_5(*sizes: int, tied: bool) -> dict[str, object]:
    keys = (
        *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
        *("num_key_value_heads", "vocab_size", "max_position_embeddings"),
    )
    return {
        "model_type": "qwen2",
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "use_sliding_window": False,
        **dict(zip(keys, sizes, strict=True)),
        "tie_word_embeddings": tied,
    }


# The published dimensions of the Qwen2.5 base models (their config.json at Hugging Face, Apache-2.0).
BUILT_IN: Mapping[str, Mapping[str, object]] = {
    "qwen2.5-0.5b": _qwen2_5(896, 4864, 24, 14, 2, 151936, 32768, tied=True),
    "qwen2.5-1.5b": _qwen2_5(1536, 8960, 28, 12, 2, 151936, 131072, tied=True),
    "qwen2.5-7b": _qwen2_5(3584, 18944, 28, 28, 4, 152064, 131072, tied=False),
}


@dataclass(frozen=True)
class Architecture:
    """A transformer to build with random weights: the words of its Hugging Face config."""

    id: str
    config: Mapping[str, object]
    config_sha256: str

    def shape(self, params: int) -> dict[str, object]:
        """Return the fields of `schema.ModelShape`, with the parameters counted on the built model."""
        sizes = sizes_of(self.config, self.id)
        return {"id": self.id, "params": params, **sizes, "config_sha256": self.config_sha256}


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
    document = read_document(path, ProfileError)
    config = document.data
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ProfileError("the model config names no model_type", where=Where(str(path), key="model_type"))
    stated = config.get("_name_or_path")
    name = stated.rsplit("/", 1)[-1] if isinstance(stated, str) and stated else path.resolve().parent.name
    if path.name != "config.json":
        name = path.stem
    name = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._") or config["model_type"]
    return Architecture(name, config, document.sha256)
