"""Models by name and by config."""

import json

import msgspec
import pytest
from importing import SAMPLES

from libra_plan.errors import InputError, ProfileError
from libra_plan.profiles.model_shapes import implausible_params, known_models, model_shape, plain_name


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b"),
        ("Qwen/Qwen3-32B", "qwen3-32b"),
    ],
)
def test_a_published_name_finds_its_shape(name, plain):
    """Tuned and quantized variants have the shape of their base."""
    assert plain_name(name) == plain
    assert model_shape(name).id == plain


def test_every_shipped_shape_counts_to_its_parameters(tmp_path):
    """Layers, heads, feed-forward and vocabulary give the stated number exactly."""
    for name in known_models():
        shape = model_shape(name)
        family = "llama" if name.startswith("llama") else name.split(".")[0].split("-")[0]
        tied = name in ("qwen2.5-0.5b", "qwen2.5-1.5b")
        config = {
            "model_type": family,
            "num_hidden_layers": shape.layers,
            "hidden_size": shape.hidden,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "intermediate_size": shape.ffn,
            "vocab_size": shape.vocab,
            "tie_word_embeddings": tied,
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert model_shape(str(tmp_path)).params == shape.params, name


def test_a_config_is_read_and_pinned():
    """The shape comes from the file, and its digest is kept."""
    shape = model_shape(str(SAMPLES / "config.json"))
    assert shape.params == model_shape("qwen2.5-7b").params
    assert shape.config_sha256 is not None


def test_parameters_that_cannot_be_counted_are_asked_for(tmp_path):
    """Experts are built in too many ways to guess."""
    config = {**json.loads((SAMPLES / "config.json").read_text()), "num_local_experts": 8}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ProfileError, match="--params"):
        model_shape(str(tmp_path))
    assert model_shape(str(tmp_path), params=46_700_000_000).experts == 8


def test_an_unknown_model_suggests_a_known_one():
    """A wrong digit is told as one."""
    with pytest.raises(InputError, match=r"qwen2\.5-7b"):
        model_shape("qwen2.5-8b")


def test_a_number_of_parameters_that_dimensions_cannot_make_is_refused():
    """Weights take params × bytes: with a slip of a unit every plan would fit, or none."""
    model = model_shape("qwen2.5-7b")
    assert implausible_params(model) is None
    assert all(implausible_params(model_shape(name)) is None for name in known_models())
    for wrong in (1, 7, 7_615_616, 76_156_165_120):
        told = implausible_params(msgspec.structs.replace(model, params=wrong))
        assert told is not None
        assert told["got"] == str(wrong)
    experts = msgspec.structs.replace(model, experts=64, params=200_000_000_000)
    assert implausible_params(experts) is None
    assert implausible_params(msgspec.structs.replace(experts, params=7)) is not None
