"""Turn a measuring journal into profile folders that the planner reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from libra_plan.errors import ProfileError, Where
from libra_plan.profiles.measure.journal import Journal, Record

__all__ = ["write_profiles"]

SCHEMA_VERSION = 1
HEADER = "# Written by `python -m libra_plan.profiles.measure` from its journal.\n"
# What a point of the journal and a row of points.csv have in common.
_POINT_FIELDS = (
    "status",
    "batch_sequences",
    "seq_len_tokens",
    "repeats",
    "time_s",
    "time_low_s",
    "time_high_s",
    "peak_allocated_mib",
    "peak_reserved_mib",
    "device_used_mib",
)
_STEP_OF = {
    "decode": "one decode step at a full context, random weights",
    "score": "one forward pass that gives log-probabilities, random weights",
    "train": "one optimizer step with full recomputation, random weights",
}
_ACCUMULATED = "one micro-batch with full recomputation beside held gradients, and its share of the step"
_TIME_DIGITS = 7  # 0.1 µs; the repeats differ by more


def write_profiles(
    journal: Journal, out_dir: Path, *, source: str | None = None, gpu_class: str | None = None
) -> tuple[Path, ...]:
    """Write `<out_dir>/<profile>/profile.yaml` and `points.csv` for every profile with a point.

    `source` names the journal for the provenance, which pins it by its digest; `gpu_class` renames
    the class, which must be the cluster's word for the GPU.
    """
    folders = []
    for profile, setup in journal.setups.items():
        rows = [record for (name, _), record in sorted(journal.points.items()) if name == profile]
        if any(row["status"] == "ok" for row in rows):
            named = setup if gpu_class is None else _renamed(setup, gpu_class)
            folders.append(_write_profile(out_dir, profile, named, rows, journal.path, source))
    return tuple(folders)


def _renamed(setup: Record, gpu_class: str) -> Record:
    hardware = setup["hardware"]
    assert isinstance(hardware, dict)
    return setup | {"hardware": hardware | {"gpu_class": gpu_class}}


def _write_profile(
    out_dir: Path, profile: str, setup: Record, rows: list[Record], journal: Path, source: str | None
) -> Path:
    # Imported here: a bare GPU machine measures without them.
    import msgspec

    from libra_plan.profiles.profile_folder import sha256_of, write_folder
    from libra_plan.profiles.schema import Point, ProfileFile

    document = {
        "schema_version": SCHEMA_VERSION,
        "id": profile,
        **{key: _known(setup[key]) for key in ("phase", "model", "hardware", "software", "method")},
        "provenance": {
            "kind": "measured",
            "points_sha256": sha256_of(b""),  # filled in when the points are text
            "source": source or journal.name,
            "source_sha256": sha256_of(journal.read_bytes()),
            "licence": "Apache-2.0",
        },
        "notes": _notes(setup),
    }
    try:
        file = msgspec.convert(document, ProfileFile)
        points = [msgspec.convert(_row(row, setup["phase"]), Point) for row in rows]
    except msgspec.ValidationError as error:
        raise ProfileError(
            "the journal holds no complete profile", got=error, where=Where(str(journal), key=profile)
        ) from error
    return write_folder(out_dir, file, points, HEADER)


def _notes(setup: Record) -> str:
    text, notes, software = _STEP_OF[str(setup["phase"])], setup.get("notes"), setup["software"]
    assert isinstance(software, Mapping)
    if "micro_batches" in software.get("flags", {}):
        text = _ACCUMULATED
    idle = notes.get("used_before_mib") if isinstance(notes, dict) else None
    if idle is not None:
        text += f"; device_used_mib counts the {idle} MiB in use before the model was built"
    return text


def _row(record: Record, phase: object) -> dict[str, object]:
    row = {key: record[key] for key in _POINT_FIELDS if record.get(key) is not None}
    for key in ("time_s", "time_low_s", "time_high_s"):
        if key in row:
            row[key] = round(float(str(row[key])), _TIME_DIGITS)
    if "time_s" in row:
        tokens = int(str(row["batch_sequences"]))
        if phase != "decode":  # a decode step yields one token a sequence
            tokens *= int(str(row["seq_len_tokens"]))
        row["tokens_per_s"] = round(tokens / float(str(row["time_s"])), 1)
    return row


def _known(value: object) -> object:
    """Leave out what is unknown: None is said by absence."""
    if not isinstance(value, Mapping):
        return value
    return {key: _known(inner) for key, inner in value.items() if inner is not None}
