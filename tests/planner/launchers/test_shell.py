"""What goes into scripts, YAML and TOML comes out again as it was, whatever it is."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.planner.launchers.shell import hydra_text, script, to_toml, to_yaml

TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    [
        "1e3",
        "0x10",
        "1_000",
        "yes",
        "y",
        "null",
        "~",
        "- a",
        "a: b",
        "#",
        "'",
        '"',
        "\\",
        "${x}",
        "$(id)",
        "\n",
    ]
)


@settings(deadline=None)
@given(value=TEXT, key=TEXT)
def test_yaml_gives_back_texts(value, key):
    """A task named `null` or `1e3` is a name."""
    assert yaml.safe_load(to_yaml(("note\nkind: Pod",), {"a": [value], "b": {key: 1}})) == {
        "a": [value],
        "b": {key: 1},
    }


@pytest.mark.parametrize("name", ["1e3", "0o17", "1_000", "y", "no", ".5", "0x1F", "12", "1.5"])
def test_names_like_numbers_are_quoted(name):
    """Kubernetes reads YAML with other rules than PyYAML, and a label must be a text for both."""
    assert to_yaml((), {"label": name}) in (f'label: "{name}"\n', f"label: '{name}'\n")


@settings(deadline=None)
@given(value=TEXT)
def test_toml_gives_back_texts(value):
    """A node list must not end its own quotes."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML reader")
    text = to_toml(("note\n[deployment]",), {"slurm": {"nodelist": value, "grace": 3, "on": True}})
    assert tomllib.loads(text) == {"slurm": {"nodelist": value, "grace": 3, "on": True}}


@settings(deadline=None)
@given(value=TEXT)
def test_hydra_gives_back_texts(value):
    """A checkpoint folder is no reference to another key and no second override."""
    parser = pytest.importorskip(
        "hydra.core.override_parser.overrides_parser", reason="Hydra is not installed"
    )
    omegaconf = pytest.importorskip("omegaconf")
    read = parser.OverridesParser.create().parse_override(f"key={hydra_text(value)}").value()
    assert omegaconf.OmegaConf.create({"key": str(read)}).key == value


def test_a_note_with_line_breaks_stays_a_note():
    """The reason why a task waits comes from outside."""
    assert script(("one\ntwo; touch gone\r\nthree",), ("true",)).splitlines()[1] == (
        "# one two; touch gone three"
    )
