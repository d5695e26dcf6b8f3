import json
from pathlib import Path

import pytest

from libra_plan.errors import ProfileError
from libra_plan.profiles.measure.architecture import BUILT_IN, find_architecture

PUBLISHED_PARAMETERS = {"qwen2.5-0.5b": 494032768, "qwen2.5-1.5b": 1543714304, "qwen2.5-7b": 7615616512}


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_dimensions_give_the_published_parameter_count(name: str) -> None:
    """A wrong dimension would measure another model under a known name."""
    model = find_architecture(name)
    shape = model.shape(PUBLISHED_PARAMETERS[name])
    hidden, ffn, layers = (shape[key] for key in ("hidden", "ffn", "layers"))
    query, key_value = shape["heads"] * shape["head_dim"], shape["kv_heads"] * shape["head_dim"]
    attention = hidden * query * 2 + query + 2 * (hidden * key_value + key_value)
    layer = attention + 3 * hidden * ffn + 2 * hidden
    embeddings = shape["vocab"] * hidden * (1 if model.config["tie_word_embeddings"] else 2)
    assert embeddings + layers * layer + hidden == PUBLISHED_PARAMETERS[name]


def config(**changes: object) -> dict[str, object]:
    return {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 32,
        "num_hidden_layers": 2,
        "intermediate_size": 128,
    } | changes


def test_a_config_file_is_found_by_file_or_folder(tmp_path: Path) -> None:
    """Both are what users have; the digest pins the file."""
    folder = tmp_path / "My Model-8B"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config()))
    model = find_architecture(str(folder))
    assert model == find_architecture(str(folder / "config.json"))
    assert model.id == "my-model-8b"
    shape = model.shape(10)
    assert (shape["head_dim"], shape["kv_heads"], shape["experts"]) == (16, 4, None)


def test_stated_dimensions_win_over_derived_ones(tmp_path: Path) -> None:
    """Some models have heads wider than hidden / heads, fewer KV heads, or experts."""
    path = tmp_path / "wide.json"
    path.write_text(json.dumps(config(head_dim=32, num_key_value_heads=2, num_experts=8)))
    model = find_architecture(str(path))
    shape = model.shape(10)
    assert (model.id, shape["head_dim"], shape["kv_heads"], shape["experts"]) == ("wide", 32, 2, 8)


def test_an_unknown_model_is_refused_with_the_known_ones() -> None:
    """A typo must not look like a missing file only."""
    with pytest.raises(ProfileError, match=r"no such model; got qwen9; allowed: qwen2\.5-0\.5b"):
        find_architecture("qwen9")


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not valid JSON"), ("{}", "model_type"), ("[1]", "model_type")]
)
def test_a_broken_config_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """Before a model of gigabytes is built."""
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=message):
        find_architecture(str(path))


def test_a_missing_dimension_is_named(tmp_path: Path) -> None:
    """Not every architecture uses these keys; the message says which one is missing."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(num_hidden_layers=None)))
    with pytest.raises(ProfileError, match="does not state `num_hidden_layers`"):
        find_architecture(str(path)).shape(10)
