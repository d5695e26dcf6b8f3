"""Sources with numbers that went wrong: read without them, or refused, never a traceback."""

import csv
import io
import json
import math

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from importing import GIVEN, SAMPLES, import_sample

from libra_plan.errors import LibraError
from libra_plan.profiles.catalog import load_profile

ODD = st.sampled_from(
    [None, "", "nan", math.nan, math.inf, -1, 0, 1e308, 1e-308, 10**30, 10**400, True, [], {}, "1,5", "12ms",
     "1e400", -0.0, "  7 ", "é", "1e308", "1e-308"]
)  # fmt: skip
"""What was found in logs, and what breaks arithmetic."""
SPOTS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 40), ODD), min_size=1, max_size=4)


def _mangled(text, spots, table):
    if table:
        rows = list(csv.reader(io.StringIO(text)))
        for line, column, odd in spots:
            row = rows[line % len(rows)]
            row[column % len(row)] = str(odd)
        out = io.StringIO()
        csv.writer(out).writerows(rows)
        return out.getvalue()
    try:
        records = [json.loads(text)]
    except json.JSONDecodeError:
        records = [json.loads(line) for line in text.splitlines()]
    for line, key, odd in spots:
        fields = records[line % len(records)]
        inner = [value for value in fields.values() if isinstance(value, dict) and value]
        fields = inner[0] if inner and key % 2 else fields
        fields[list(fields)[key % len(fields)]] = odd
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", sorted(GIVEN))
@given(spots=SPOTS)
@example(spots=[(1, 27, "")])
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_odd_numbers_are_left_out_or_refused(tmp_path, name, spots):
    """A count of 1e-308 requests ended `profile import` in an OverflowError."""
    sample = SAMPLES / GIVEN[name][0]
    source = tmp_path / f"source{sample.suffix}"
    source.write_text(_mangled(sample.read_text(), spots, sample.suffix == ".csv"))
    try:
        folders, _ = import_sample(name, tmp_path / "out", source=source, replace=True)
    except LibraError:
        return
    for folder in folders:
        assert all(
            point.time_s is None or 1e-9 <= point.time_s <= 1e15 for point in load_profile(folder).points
        )
