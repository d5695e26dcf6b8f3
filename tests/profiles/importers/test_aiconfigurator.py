"""AIConfigurator's table of measured serving rows."""

import csv
import io

import pytest
from importing import SAMPLES, import_sample

from libra_plan.errors import InputError, ProfileError
from libra_plan.profiles.catalog import load_profile

TEXT = (SAMPLES / "aic_llama70b_h200.csv").read_text()


def changed(folder, **cells):
    """Write the sample with some cells of its first row changed."""
    rows = list(csv.DictReader(io.StringIO(TEXT)))
    rows[0].update(cells)
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path = folder / "table.csv"
    path.write_text(out.getvalue())
    return path


def test_a_row_is_time_per_token_at_requests_in_flight(tmp_path):
    """Milliseconds become seconds; a profile is one system, model, engine, version and precision."""
    folders, _ = import_sample("aiconfigurator", tmp_path)
    first = next(csv.DictReader(io.StringIO(TEXT)))
    profiles = [load_profile(folder) for folder in folders]
    wanted = (int(first["batch_size"]), int(first["isl"]), int(first["osl"]), int(first["tp_size"]))
    (found,) = [
        point
        for profile in profiles
        if profile.file.hardware.gpu_class == first["system"]
        if profile.file.software.framework == first["backend"]
        for point in profile.points
        if (point.batch_sequences, point.prompt_tokens, point.output_tokens, point.tp) == wanted
    ]
    assert found.time_s == pytest.approx(float(first["silicon_tpot_ms"]) / 1e3)
    assert found.ttft_s == pytest.approx(float(first["silicon_ttft_ms"]) / 1e3)
    assert all(profile.file.provenance.kind == "published" for profile in profiles)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"mode": "disagg"}, "prefill and decode on GPUs of their own"),
        ({"attention_dp_size": "2"}, "data-parallel attention"),
        ({"silicon_tpot_ms": "0"}, "silicon_ttft_ms or silicon_tpot_ms is missing"),
        ({"batch_size": "1.5"}, "batch_size is not a whole number"),
        ({"system": ""}, "system, model_path or backend is empty"),
    ],
)
def test_a_row_without_a_phase_here_is_kept_out(tmp_path, cells, reason):
    """Its reason is listed, and the other rows are imported."""
    _, report = import_sample("aiconfigurator", tmp_path / "out", source=changed(tmp_path, **cells))
    assert [reason in item.reason for item in report.quarantined].count(True) == 1
    assert report.kept


def test_no_row_selected_is_told_with_the_selection(tmp_path):
    """An empty result must not look like an empty table."""
    with pytest.raises(ProfileError, match="backend=nobody"):
        import_sample("aiconfigurator", tmp_path, select="backend=nobody")


def test_a_selection_by_an_unknown_column_is_refused(tmp_path):
    """`precison=` selects rows with an empty cell: all of them."""
    with pytest.raises(InputError, match="did you mean `precision`"):
        import_sample("aiconfigurator", tmp_path, select="precison=")
