import json
from pathlib import Path

import pytest

from libra_plan.errors import ProfileError
from libra_plan.profiles.measure.journal import MeasureJournal
from libra_plan.profiles.measure.plan import PlannedPoint

SETUP = {"phase": "train", "hardware": {"gpu_class": "h"}, "method": {"date": "2030-01-01"}}
ROW = {"record": "point", "profile": "p", "batch_sequences": 2, "seq_len_tokens": 8, "status": "ok"}


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    """A machine that dies while writing leaves half a line: that point is measured again."""
    path = tmp_path / "journal.jsonl"
    journal = MeasureJournal(path)
    journal.begin("p", SETUP)
    journal.write(dict(ROW))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"record": "point", "prof')
    assert MeasureJournal(path).done("p") == {PlannedPoint(2, 8): "ok"}
    assert path.read_bytes() == whole


def test_another_day_goes_on_but_another_machine_is_refused(tmp_path: Path) -> None:
    """Points of two machines in one profile would be a lie; the message names both."""
    path = tmp_path / "journal.jsonl"
    MeasureJournal(path).begin("p", SETUP)
    MeasureJournal(path).begin(
        "p", SETUP | {"method": {"date": "2031-01-01"}, "notes": {"used_before_mib": 1}}
    )
    with pytest.raises(ProfileError, match=r"another machine or stack; got hardware: .*'i'.*allowed: .*'h'"):
        MeasureJournal(path).begin("p", SETUP | {"hardware": {"gpu_class": "i"}})
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize("line", ["[]", "{}", "nonsense", json.dumps(ROW | {"seq_len_tokens": "8"})])
def test_another_file_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    """Appending to a file that is no journal would destroy it."""
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(ROW) + "\n" + line + "\n")
    with pytest.raises(ProfileError, match=r"journal\.jsonl:2: not a measuring journal"):
        MeasureJournal(path)


def test_numbers_that_json_lacks_are_not_written(tmp_path: Path) -> None:
    """NaN in a journal could not be read by others; nothing reaches the file."""
    journal = MeasureJournal(tmp_path / "journal.jsonl")
    with pytest.raises(ValueError, match="JSON"):
        journal.write(ROW | {"time_s": float("nan")})
    assert not (tmp_path / "journal.jsonl").exists()
