"""Any CSV table, its columns mapped by hand."""

import pytest
from importing import SAMPLES, import_sample

from libra_plan.errors import InputError, ProfileError
from libra_plan.profiles.catalog import load_profile

SERVE = "batch_sequences=b,prompt_tokens=i,output_tokens=o,time_s=tpot:ms,ttft_s=ttft:ms"


@pytest.mark.parametrize(("unit", "mib"), [("GB", 1e9 / 2**20), ("GiB", 1024.0)])
def test_memory_units_are_what_they_say(tmp_path, unit, mib):
    """An 80 GB card has 81,559 MiB: one letter decides whether a role fits."""
    columns = (
        f"batch_sequences=bs,seq_len_tokens=length,time_s=latency_ms:ms,peak_reserved_mib=memory_gb:{unit}"
    )
    folders, _ = import_sample("csv", tmp_path, columns=columns)
    assert load_profile(folders[0]).points[0].peak_reserved_mib == pytest.approx(20.0256 * mib, rel=1e-6)


@pytest.mark.parametrize("unit", ["MiB", "MB", "KiB"])
def test_memory_in_another_unit_leaves_no_room_for_the_weights(tmp_path, unit):
    """The limit that counts most must not rest on a typo."""
    columns = (
        f"batch_sequences=bs,seq_len_tokens=length,time_s=latency_ms:ms,peak_reserved_mib=memory_gb:{unit}"
    )
    with pytest.raises(ProfileError, match="below the weights"):
        import_sample("csv", tmp_path, columns=columns)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("batch_sequences=bs,seq_len_tokens=length,time_s=latency_ms", "unit of time_s"),
        ("batch_sequences=bs,seq_len_tokens=length,time_s=latency_ms:GB", "unit of time_s"),
        ("batch_sequences=bs:ms,seq_len_tokens=length,time_s=latency_ms:ms", "plain number"),
        ("batch=bs,seq_len_tokens=length,time_s=latency_ms:ms", "no column of points.csv"),
        ("batch_sequences=bs,time_s=latency_ms:ms", "needs more columns"),
    ],
)
def test_a_mapping_that_leaves_something_open_is_refused(tmp_path, columns, said):
    """A unit, once guessed, is wrong for somebody."""
    with pytest.raises(InputError, match=said):
        import_sample("csv", tmp_path, columns=columns)


MAPPED = "batch_sequences=bs,seq_len_tokens=length,time_s=latency_ms:ms"


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        (
            "batch_sequences=bs,seq_len_tokens=lenght,time_s=latency_ms:ms",
            (
                "takes seq_len_tokens",
                "got lenght",
                "bs, length, latency_ms, memory_gb",
                "did you mean `length`?",
            ),
        ),
        (f"{MAPPED},peak_reserved_mib=memm:GiB", ("takes peak_reserved_mib", "got memm")),
        (f"{MAPPED},peak_reserved_mib=memory_gb:gib", ("got gib", "did you mean `GiB`?")),
        ("batch_sequences=bs,seq_len_tokens=length,time_s=latency_ms:mss", ("got mss", "did you mean `ms`?")),
        ("batch_sequences=bs,seq_len_tokens=length,time_s=latency_ms", ("write time_s=latency_ms:s or",)),
        (
            "batch_sequences=bs,time_s=latency_ms:ms",
            ("also seq_len_tokens", "not taken yet: hardware, length, memory_gb"),
        ),
        (f"{MAPPED},batch_sequences=length", ("--columns is not understood", "each of ours once")),
    ],
)
def test_nothing_that_was_mapped_is_dropped_in_silence(tmp_path, columns, parts):
    """A misspelt column or unit left memory out of a profile and nobody was told."""
    with pytest.raises(InputError) as caught:
        import_sample("csv", tmp_path, columns=columns)
    for part in parts:
        assert part in caught.value.message


def test_every_file_of_a_folder_must_have_the_columns(tmp_path):
    """One table of many with another header would lose its memory."""
    text = (SAMPLES / "table.csv").read_text()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "a.csv").write_text(text)
    (tmp_path / "source" / "b.csv").write_text(text.replace("memory_gb", "memory", 1))
    with pytest.raises(InputError, match=r"b\.csv:1: .*got memory_gb"):
        import_sample("csv", tmp_path / "out", source=tmp_path / "source")


def test_a_column_that_stands_twice_is_refused(tmp_path):
    """Which of the two is meant is not ours to choose; a colon in a name is no unit."""
    text = (SAMPLES / "table.csv").read_text()
    (tmp_path / "t.csv").write_text(text.replace("memory_gb", "length", 1))
    with pytest.raises(InputError, match="`length` stands twice"):
        import_sample("csv", tmp_path / "out", source=tmp_path / "t.csv", columns=MAPPED)
    (tmp_path / "t.csv").write_text(text.replace("latency_ms", "latency:p50", 1))
    columns = "batch_sequences=bs,seq_len_tokens=length,time_s=latency:p50:ms"
    folders, _ = import_sample("csv", tmp_path / "out", source=tmp_path / "t.csv", columns=columns)
    assert load_profile(folders[0]).points[0].time_s > 0


def table(folder, seconds):
    folder.mkdir(exist_ok=True)
    path = folder / "serve.csv"
    rows = [f"{b},1024,256,{seconds(b) * 1e3},{500 * b / 8}" for b in (4, 8, 16, 32, 64, 128)]
    path.write_text("b,i,o,tpot,ttft\n" + "\n".join(rows) + "\n")
    return path


def test_both_definitions_of_time_per_token_give_one_profile(tmp_path):
    """The same runs, once as (e2e − ttft)/(out − 1), once as e2e/out."""

    def decode(batch):
        return 0.01 + 1e-4 * batch

    def whole(batch):
        return (0.5 * batch / 8 + 255 * decode(batch)) / 256

    given = {"phase": "serve", "columns": SERVE}
    one = table(tmp_path / "one", decode)
    two = table(tmp_path / "two", whole)
    first, _ = import_sample("csv", tmp_path / "a", source=one, tpot_definition="decode", **given)
    second, _ = import_sample("csv", tmp_path / "b", source=two, tpot_definition="e2e", **given)
    for a, b in zip(load_profile(first[0]).points, load_profile(second[0]).points, strict=True):
        assert a.time_s == pytest.approx(b.time_s)
    with pytest.raises(InputError, match="--tpot-definition"):
        import_sample("csv", tmp_path / "c", source=one, **given)


def test_a_rate_needs_what_it_counts(tmp_path):
    """Prompt and output, in total or per GPU: off by 2 to 16 otherwise."""
    columns = "batch_sequences=bs,seq_len_tokens=length,time_s=latency_ms:ms,tokens_per_s=memory_gb"
    with pytest.raises(InputError, match="--tokens-counted, --throughput-basis"):
        import_sample("csv", tmp_path, columns=columns)
