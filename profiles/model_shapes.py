"""Find a model's shape: by the name of a well-known model, or from a local Hugging Face config.json."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from libra_plan.errors import InputError, ProfileError, Where
from libra_plan.profiles import wording
from libra_plan.profiles.document import decode, read_document, shown
from libra_plan.profiles.schema import ModelShape

__all__ = ["implausible_params", "known_models", "model_shape", "plain_name", "sizes_of"]

_FOLDER = Path(__file__).parent / "llms"
_COUNTED = ("llama", "mistral", "qwen2", "qwen3")
_SUFFIXES = re.compile(r"(-(instruct|chat|base|hf|fp8|fp8-dynamic|bf16))+$")


def known_models() -> tuple[str, ...]:
    """List the models whose shapes come with the package."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def plain_name(name: str) -> str:
    """Return the library's name of a model: no owner, no `Meta-`, no `-Instruct` or precision at the end."""
    last = name.rstrip("/").rsplit("/", maxsplit=1)[-1].lower().removeprefix("meta-")
    return _SUFFIXES.sub("", last)


def model_shape(name: str, params: int | None = None) -> ModelShape:
    """Return the shape of a known model, or of the config.json (or its folder) at a path.

    `params` is needed for a config of an architecture whose parameters we cannot count.
    """
    known = _FOLDER / f"{plain_name(name)}.yaml"
    if known.is_file() and not Path(name).exists():
        return decode(read_document(known), ModelShape)
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if path.is_file():
        return _shape_from_config(path, params)
    raise InputError(
        "no such model",
        got=name,
        allowed=f"{wording.one_of(known_models())}, or the path of a config.json",
        way_out=wording.did_you_mean(plain_name(name), known_models()) or "give the path of its config.json",
    )


def sizes_of(config: Mapping[str, object], file: str) -> dict[str, int | None]:
    """Return the dimensions that a Hugging Face config states; `experts` is None for a dense model."""

    def stated(*names: str) -> int | None:
        return next(
            (value for name in names if isinstance(value := config.get(name), int) and value > 0), None
        )

    def count(*names: str) -> int:
        value = stated(*names)
        if value is None:
            raise ProfileError(
                f"the config does not state `{names[0]}`",
                got=config.get(names[0]),
                allowed="a whole number from 1",
                way_out="give the config.json of a transformer language model",
                where=Where(file, key=names[0]),
            )
        return value

    heads, hidden = count("num_attention_heads", "n_head"), count("hidden_size", "n_embd")
    return {
        "layers": count("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": stated("num_key_value_heads") or heads,
        "head_dim": stated("head_dim") or hidden // heads,
        "ffn": count("intermediate_size", "n_inner"),
        "vocab": count("vocab_size"),
        "experts": stated("num_experts", "num_local_experts", "n_routed_experts"),
    }


def _shape_from_config(path: Path, params: int | None) -> ModelShape:
    """Read a Hugging Face config.json; its folder gives the model its name."""
    document = read_document(path, ProfileError)
    config: dict[str, Any] = document.data if isinstance(document.data, dict) else {}
    if isinstance(config.get("text_config"), dict):  # multimodal configs keep the language model inside
        config = config["text_config"]
    sizes = sizes_of(config, shown(path))
    shape = {
        "id": path.resolve().parent.name or "model",
        "params": params or _counted(config, sizes, path),
        "config_sha256": document.sha256,
        **sizes,
    }
    return msgspec.convert(shape, ModelShape)


def implausible_params(model: ModelShape) -> dict[str, str] | None:
    """Return the parts of a message about a number of parameters that cannot be true, or None.

    A dense transformer has at least its attention, two feed-forward matrices a layer and one
    embedding, and hardly more than with three of them and an output of its own. Of one with
    experts only the least is known: attention and one embedding.
    """
    wide, narrow = model.heads * model.head_dim, model.kv_heads * model.head_dim
    attention = model.layers * 2 * model.hidden * (wide + narrow)
    ffn, embedding = model.layers * model.hidden * model.ffn, model.vocab * model.hidden
    least = 0.9 * (attention + embedding + (2 * ffn if model.experts is None else 0))
    most = 1.2 * (attention + 3 * ffn + 2 * embedding) if model.experts is None else float("inf")
    if least <= model.params <= most:
        return None
    return {
        "what": "the number of parameters does not fit the model's dimensions",
        "got": f"{model.params}",
        "allowed": f"{least:.3g} or more" if most == float("inf") else f"{least:.3g} to {most:.3g}",
        "way_out": "write the whole number that the model card states, and the dimensions of its config.json",
    }


def _counted(config: Mapping[str, object], sizes: Mapping[str, int | None], path: Path) -> int:
    """Count the parameters of a dense, gated transformer: embeddings, attention, feed-forward, norms."""
    family, experts = config.get("model_type"), sizes["experts"]
    if family not in _COUNTED or experts is not None:
        raise ProfileError(
            "the parameters of this architecture cannot be counted from its config",
            got=f"model_type {family}" + (f" with {experts} experts" if experts else ""),
            allowed=wording.one_of(_COUNTED),
            way_out="add --params with their number, as the model card states it",
            where=Where(shown(path), key="model_type"),
        )
    of = {name: value or 0 for name, value in sizes.items()}
    hidden, wide, narrow = of["hidden"], of["heads"] * of["head_dim"], of["kv_heads"] * of["head_dim"]
    biased = family == "qwen2" or bool(config.get("attention_bias"))
    layer = 2 * hidden * wide + 2 * hidden * narrow + 3 * hidden * of["ffn"] + 2 * hidden
    layer += (wide + 2 * narrow if biased else 0) + (2 * of["head_dim"] if family == "qwen3" else 0)
    tables = 1 if config.get("tie_word_embeddings", False) else 2
    return of["layers"] * layer + tables * of["vocab"] * hidden + hidden
