from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import ClusterError, InputError, ProfileError, WorkloadError
from libra_plan.profiles import document as reader
from libra_plan.profiles.document import MAX_FILE_BYTES, decode, parse_document, read_document
from libra_plan.profiles.schema import ClusterFile, Software, WorkloadFile

CLUSTER = "schema_version: 1\nnodes:\n  - id: a\n    gpu_class: h200\n    gpu_count: 8\n"


def cluster(text: str, name: str = "c.yaml") -> ClusterFile:
    return decode(parse_document(text, name, ClusterError), ClusterFile, ClusterError)


def complaint(text: str, name: str = "c.yaml") -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        cluster(text, name)
    return caught.value


def test_reads_a_cluster_with_its_lines() -> None:
    """Later checks point at lines, so every key and list item must know its own."""
    document = parse_document(CLUSTER, "c.yaml")
    assert decode(document, ClusterFile).nodes[0].gpu_count == 8
    assert document.lines == {
        "schema_version": 1,
        "nodes": 2,
        "nodes[0]": 3,
        "nodes[0].id": 3,
        "nodes[0].gpu_class": 4,
        "nodes[0].gpu_count": 5,
    }
    assert document.where("nodes[0].gpus[2].uuid").line == 3, "a key the file lacks points at its parent"


def test_a_number_with_an_exponent_is_a_number() -> None:
    """A071: PyYAML alone reads `1e9` and `2e5` as text."""
    assert cluster(CLUSTER + "    host_memory_mib: 2e5\n").nodes[0].host_memory_mib == 200_000
    assert cluster(CLUSTER.replace("gpu_count: 8", "gpu_count: 8e0")).nodes[0].gpu_count == 8


@pytest.mark.parametrize("text", ['"2e5"', "'200000'", '"200,000"'])
def test_a_number_in_quotes_is_told_to_be_unquoted(text: str) -> None:
    """A071: a numeric string is refused rather than guessed, and the message says how to write it."""
    error = complaint(CLUSTER + f"    host_memory_mib: {text}\n")
    assert error.where is not None
    assert (error.where.line, error.where.key) == (6, "nodes[0].host_memory_mib")
    assert error.way_out is not None
    assert "without quotes" in error.way_out


def test_duplicate_keys_name_both_lines() -> None:
    """A072: the last of two equal keys must not win in silence."""
    error = complaint(CLUSTER + "    gpu_count: 4\n")
    assert error.message.startswith("c.yaml:6: nodes[0]: duplicate key `gpu_count`; got it on line 5")


def test_duplicate_keys_in_json_name_both_lines() -> None:
    """A072: the standard JSON reader keeps the last one too."""
    error = complaint('{"name": "a",\n "nodes": [],\n "name": "b"}', "c.json")
    assert "duplicate key `name`" in error.message
    assert "line 1" in error.message
    assert "line 3" in error.message


@pytest.mark.parametrize("word", ["no", "yes", "on", "off", "y", "N", "NO"])
def test_words_of_yaml_1_1_stay_text(word: str) -> None:
    """A073: a node called `no` is not the node False."""
    assert cluster(CLUSTER.replace("id: a", f"id: {word}")).nodes[0].id == word


@pytest.mark.parametrize(("word", "quoted"), [("true", '"true"'), ("False", '"false"'), ("12", '"12"')])
def test_a_value_that_is_not_text_is_told_to_be_quoted(word: str, quoted: str) -> None:
    """A073: where text is wanted, a bool or a number gets a hint and no conversion."""
    error = complaint(CLUSTER.replace("id: a", f"id: {word}"))
    assert error.way_out == f"quote it: {quoted}"


def test_times_and_leading_zeros_are_not_converted() -> None:
    """A073: YAML 1.1 reads 1:30 as 90 and 010 as 8."""
    assert parse_document("a: 1:30\nb: 010\nc: 0o17\nd: 0x1F", "c.yaml").data == {
        "a": "1:30",
        "b": 10,
        "c": 15,
        "d": 31,
    }


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "null\n"])
def test_an_empty_file_is_called_empty(text: str) -> None:
    """A074: `safe_load` gives None and the crash comes later."""
    error = complaint(text)
    assert "empty file" in error.message
    assert error.exit_code == 2
    assert (
        "empty file"
        in complaint(text.replace("#", " ").replace("-", "").replace("only a comment", ""), "c.json").message
    )


@pytest.mark.parametrize("word", [".nan", ".inf", "-.inf", "NaN", "Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused_in_yaml(word: str) -> None:
    """A075: one NaN would spread through every sum."""
    assert complaint(CLUSTER + f"    cpu_cores: {word}\n").where.line == 6  # type: ignore[union-attr]


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused_in_json(word: str) -> None:
    """A075: Python's JSON reader accepts NaN, which is not JSON."""
    assert "number" in complaint(f'{{"schema_version": 1, "rate": {word}}}', "c.json").what


def test_a_file_of_nul_bytes_is_reported(tmp_path: Path) -> None:
    """A076: what a crash without fsync leaves behind must be named, not parsed."""
    path = tmp_path / "c.yaml"
    path.write_bytes(b"schema_version: 1\n" + b"\0" * 100)
    with pytest.raises(InputError, match=r"c\.yaml:2: the file holds NUL bytes"):
        read_document(path)


def test_paths_with_accents_work_in_the_posix_locale(tmp_path: Path) -> None:
    """A080: a container without a locale must neither fail to open such a file nor to name it."""
    folder = tmp_path / "été"
    folder.mkdir()
    (folder / "c.yaml").write_text("name: déjà\n", encoding="utf-8")
    code = (
        "import sys\nfrom libra_plan.profiles.document import read_document\n"
        "document = read_document(sys.argv[1])\nprint(ascii(document.data), ascii(document.path))"
    )
    roots = os.pathsep.join(path for path in sys.path if path)
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": roots}
    done = subprocess.run(
        [sys.executable, "-c", code, os.fspath(folder / "c.yaml")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert r"d\xe9j\xe0" in done.stdout
    assert r"\xe9t\xe9" in done.stdout


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    """A081: a wrong path (a log, a device) must not fill memory."""
    path = tmp_path / "c.yaml"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(InputError, match="too large"):
        read_document(path)


@pytest.mark.parametrize("key", ["host_memory_gb", "host_memory", "host_memory_gib", "host_memory_bytes"])
def test_a_quantity_without_its_unit_is_refused(key: str) -> None:
    """A082: 130 GiB and 130 GB decide between 17 and 16 GPUs, so the unit is part of the key."""
    error = complaint(CLUSTER + f"    {key}: 130\n")
    assert f"unknown key `{key}`" in error.what
    assert error.way_out is not None
    assert "`host_memory_mib`" in error.way_out


def test_a_value_with_its_unit_is_told_to_stand_alone() -> None:
    """A082: `130 GiB` is text and would need a convention of its own."""
    error = complaint(CLUSTER + "    host_memory_mib: 130 GiB\n")
    assert error.way_out == "write the number alone: its unit is in the key"


def test_batch_sizes_are_named_by_what_they_count() -> None:
    """A083: `train_batch_size` may mean prompts or samples; our key says samples."""
    text = "schema_version: 1\ntasks:\n- id: a\n  roles: []\n  work_per_step: {train_batch_size: 1024}\n"
    with pytest.raises(WorkloadError, match="allowed: samples, prompt_tokens, response_tokens, turns"):
        decode(parse_document(text, "w.yaml"), WorkloadFile, WorkloadError)


@pytest.mark.parametrize("value", ["0", "-1", "0.5"])
def test_counts_are_at_least_one_and_whole(value: str) -> None:
    """A086: a size of 0 after some normalisation kills the run later."""
    error = complaint(CLUSTER.replace("gpu_count: 8", f"gpu_count: {value}"))
    assert error.what == "expected a whole number ≥ 1 and ≤ 1024"
    assert error.got == f"the number {value}"


def test_a_mistyped_key_gets_the_nearest_one_and_all_allowed() -> None:
    """People mistype keys: the message must save the look into the manual."""
    error = complaint(CLUSTER.replace("gpu_class", "gpu_clas"))
    assert error.way_out == "did you mean `gpu_class`?"
    assert error.allowed is not None
    assert "gpu_memory_mib" in error.allowed
    assert error.where is not None
    assert error.where.line == 4


def test_a_missing_key_says_what_to_add() -> None:
    """The way out of a missing key is its name and kind."""
    error = complaint(CLUSTER.replace("    gpu_class: h200\n", ""))
    assert error.what == "key `gpu_class` is missing"
    assert error.way_out is not None
    assert error.way_out.startswith("add it: a name of letters")


def test_a_wrong_kind_of_distribution_lists_the_kinds() -> None:
    """A tag decides which other keys are allowed, so it must be explained first."""
    text = (
        "schema_version: 1\ntasks:\n- id: a\n  roles: []\n"
        "  work_per_step: {samples: 1, prompt_tokens: {kind: normal, tokens: 3}}\n"
    )
    with pytest.raises(WorkloadError) as caught:
        decode(parse_document(text, "w.yaml"), WorkloadFile, WorkloadError)
    assert caught.value.allowed == "fixed, lognormal, histogram, trace"
    assert caught.value.where is not None
    assert caught.value.where.key == "tasks[0].work_per_step.prompt_tokens.kind"


def test_free_form_flags_take_scalars_only() -> None:
    """The schema library hides the key of a dictionary's value; people need it to find the value."""
    with pytest.raises(ProfileError, match=r"flags\.x: expected text or a whole number"):
        decode(
            parse_document("framework: a\nversion: '1'\nprecision: b\nflags: {x: [1]}", "p.yaml"), Software
        )


def test_another_schema_version_is_named_as_such() -> None:
    """A file of a later version must not be half understood."""
    error = complaint(CLUSTER.replace("schema_version: 1", "schema_version: 2"))
    assert error.what == "expected the value 1"
    assert error.way_out == "this version of libra-plan reads no other"


def test_names_do_not_end_in_a_line_break() -> None:
    """`$` in a pattern matches before a last line break, which would end up in file names."""
    assert "expected a name" in complaint(CLUSTER.replace("id: a", 'id: "a\\n"')).what


@pytest.mark.parametrize(
    "name", ["missing.yaml", ".", "x" * 300, "a\0b"], ids=["none", "folder", "long", "nul"]
)
def test_a_path_that_cannot_be_read_is_an_input_error(tmp_path: Path, name: str) -> None:
    """A wrong path is the user's, not a traceback."""
    with pytest.raises(InputError) as caught:
        read_document(tmp_path / name)
    assert caught.value.where is not None


def test_bytes_that_are_not_utf_8_name_their_line(tmp_path: Path) -> None:
    """A Latin-1 file must be told apart from a broken one."""
    path = tmp_path / "c.yaml"
    path.write_bytes(b"name: ok\nother: d\xe9j\xe0\n")
    with pytest.raises(InputError, match=r"c\.yaml:2: the file is not UTF-8; got byte 0xe9"):
        read_document(path)


def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + CLUSTER.encode())
    assert decode(read_document(path), ClusterFile).name == "cluster"


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=200), json_name=st.booleans())
def test_arbitrary_bytes_never_crash_the_reader(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, json_name: bool
) -> None:
    """Whatever a file holds, the answer is data or an InputError."""
    path = tmp_path_factory.mktemp("any") / ("f.json" if json_name else "f.yaml")
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        decode(read_document(path), ClusterFile)


@settings(max_examples=300, deadline=None)
@given(text=st.text(alphabet="ab1.e-+:{}[],\"'&*!|>#?%@ \n\t~nuleINf", max_size=60), json_name=st.booleans())
def test_text_of_yaml_characters_never_crashes_the_reader(text: str, json_name: bool) -> None:
    """Bytes at random seldom reach the deeper states of a parser; its own signs do."""
    with contextlib.suppress(InputError):
        decode(parse_document(text, "f.json" if json_name else "f.yaml"), ClusterFile)


characters = st.characters(exclude_characters="\0", exclude_categories=["Cs"])  # NUL is refused
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(characters, max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(characters, max_size=5), inner, max_size=4)
    ),
    max_leaves=15,
)


@settings(max_examples=200, deadline=None)
@given(
    data=st.dictionaries(st.text(characters, max_size=5), plain_values, min_size=1, max_size=4),
    indent=st.none() | st.just(1),
)
def test_json_is_read_as_the_standard_library_reads_it(data: dict[str, object], indent: int | None) -> None:
    """Our reader differs from the standard one in lines and refusals, not in values."""
    assert parse_document(json.dumps(data, indent=indent), "f.json").data == data


@settings(max_examples=200, deadline=None)
@given(st.text(characters, max_size=12))
def test_a_struct_with_any_text_in_place_of_a_number_is_explained(text: str) -> None:
    """Every validation error becomes one with a file and a key."""
    document = parse_document(
        json.dumps({"schema_version": 1, "nodes": [], "inter_node_gib_per_s": text}), "c.json"
    )
    with pytest.raises(ClusterError) as caught:
        decode(document, ClusterFile, ClusterError)
    assert caught.value.where is not None
    assert caught.value.where.key == "inter_node_gib_per_s"


CASES = {
    "an alias before its anchor": ("a: *x", "found undefined alias"),
    "a value that holds itself": ("a: &a [*a]", "nested too deeply"),
    "a second document": ("a: 1\n---\nb: 2", "single document"),
    "a list as key": ("? [a]\n: 2", "key must be plain text"),
    "a number as key": ("1: 2", "key must be text"),
    "a tag that runs code": ("a: !!python/object:os.system x", "tag"),
    "a tagged list": ("a: !!set {b}", "tag"),
    "an open list": ("a: [1, 2", "not valid YAML"),
    "a tab as indent": ("a:\n\tb: 1", "not valid YAML"),
    "a control character": ("a: \x01", "not valid YAML"),
    "a NUL that is written as an escape": ('a: "x\\0y"', "NUL character"),
    "deep nesting": ("[" * 10_000, "nested too deeply|nesting depth|did not find expected node content"),
    "deep nesting by aliases": (
        "k0: &k0 [1]\n" + "".join(f"k{i}: &k{i} [*k{i - 1}]\n" for i in range(1, 3000)),
        "nested too deeply",
    ),
    "a billion laughs": (
        "a0: &a0 [1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
        "too many values",
    ),
    "a number without end": ("a: " + "9" * 5000, "too large"),
    "a hexadecimal number without end": ("a: 0x" + "f" * 5000, "too large"),
}


@pytest.mark.parametrize("c_loader", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_hostile_yaml_is_refused(case: str, c_loader: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With libyaml or without it, such files end in a message and not in a hang or a traceback."""
    if not c_loader:
        monkeypatch.setattr(reader, "_LOADER", reader._marking_plain(yaml.BaseLoader))
    text, words = CASES[case]
    with pytest.raises(InputError, match=words):
        parse_document(text, "f.yaml")


def test_aliases_within_the_limits_are_read() -> None:
    """Anchors are useful: one distribution for two tasks."""
    document = parse_document("a: &a {kind: fixed, tokens: 3}\nb: *a\nc: [*a]\n", "f.yaml")
    fixed = {"kind": "fixed", "tokens": 3}
    assert document.data == {"a": fixed, "b": fixed, "c": [fixed]}
    assert document.lines["b.tokens"] == 1, "an aliased key is where its anchor is"


def test_quotes_and_tags_decide_the_kind() -> None:
    """Quoted words are text, and a tag says what a word is."""
    assert parse_document("a: '1'\nb: !!str 1\nc: !!int 1\nd: |\n  1\ne: ~", "f.yaml").data == {
        "a": "1",
        "b": "1",
        "c": 1,
        "d": "1\n",
        "e": None,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1,}', "not valid JSON"),
        ('{"a" 1}', "Expecting ':' delimiter"),
        ("[1 2]", "Expecting ',' delimiter"),
        ("[1,]", "Expecting value|trailing comma"),
        ('{"a": 01}', "Expecting ',' delimiter"),
        ('{"a": .5}', "Expecting value"),
        ('"a', "Unterminated string"),
        (r'"\ud800"', "text is broken"),
        (r'{"a": "x\u0000y"}', "NUL character"),
        ('"a\nb"', "Invalid control character"),
        ("{} {}", "Extra data"),
        ("{", "in double quotes; got the end"),
        ("[" * 100_000, "nested too deeply"),
        ("[" + "1," * 300_000 + "1]", "too many values"),
        ("'a'", "Expecting value"),
        ("[True]", "Expecting value"),
    ],
)
def test_what_is_not_json_is_refused(text: str, words: str) -> None:
    """The reader is strict: what another program would refuse is refused here first."""
    with pytest.raises(InputError, match=words):
        parse_document(text, "f.json")


def test_lines_are_those_of_the_keys() -> None:
    """Messages about JSON point at lines just as those about YAML do."""
    document = parse_document('{\n "a": [\n  1,\n  {"b": 2}\n ]\n}', "f.json")
    assert document.lines == {"a": 2, "a[0]": 3, "a[1]": 4, "a[1].b": 4}
    with pytest.raises(InputError, match=r"f\.json:3: not valid JSON"):
        parse_document('{\n "a": [\n  x\n ]\n}', "f.json")
