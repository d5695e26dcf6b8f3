import json
import runpy
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from fake_work import FakeBackend, FakeClock

from libra_plan.errors import InputError, ProfileError
from libra_plan.profiles.catalog import load_profile, shipped_folder
from libra_plan.profiles.measure.journal import MeasureJournal, write_profiles
from libra_plan.profiles.measure.measure import MeasureReport, measure_profile
from libra_plan.profiles.measure.plan import PlannedPoint

ROOT = Path(__file__).resolve().parents[3]
POINTS = (PlannedPoint(1, 128), PlannedPoint(4, 128), PlannedPoint(8, 256))
Plan = Mapping[str, Sequence[PlannedPoint]]
PLAN: Plan = dict.fromkeys(("decode", "decode-gqa", "score", "train"), POINTS)
MODEL = "qwen2.5-0.5b"
needs_source = pytest.mark.skipif(
    not (ROOT / "benchmarks" / "h200b").is_dir(), reason="run against an installed package"
)


def run(
    out: Path, backend: FakeBackend, phases: tuple[str, ...], budget_s: float | None = None, plan: Plan = PLAN
) -> MeasureReport:
    return measure_profile(
        MODEL,
        out,
        phases,
        plan=plan,
        budget_s=budget_s,
        warmup=1,
        repeats=3,
        date="2030-01-02",
        clock=backend.clock,
        backend=backend,
    )


def test_profiles_that_are_written_are_read_by_the_planner(tmp_path: Path) -> None:
    """The whole way: measured points, kept OOM row, rates, digest, metadata."""
    backend = FakeBackend(
        FakeClock(), options={"capacity": 1000, "seconds": lambda point: point.tokens / 1000}
    )
    report = run(tmp_path, backend, ("train", "decode"))
    train, decode = (load_profile(folder) for folder in report.folders)
    assert train.file.id == f"fake-{MODEL}-train"
    assert [point.status for point in train.points] == ["ok", "ok", "oom"]
    first = train.points[0]
    assert (first.time_s, first.tokens_per_s, first.repeats) == (0.128, 1000.0, 3)
    assert decode.points[0].tokens_per_s == pytest.approx(1 / 0.128, rel=0.02)
    assert (train.file.method.tokens_counted, decode.file.method.tokens_counted) == ("input", "output")
    assert (train.file.method.date, train.file.method.exclusive) == ("2030-01-02", True)
    assert train.set_aside == ()
    assert report.complete


def test_a_finished_run_builds_no_model_again(tmp_path: Path) -> None:
    """A restart after the end must cost nothing and change nothing."""
    run(tmp_path, FakeBackend(FakeClock()), ("score",))
    before = (tmp_path / "journal.jsonl").read_bytes()
    backend = FakeBackend(FakeClock())
    report = run(tmp_path, backend, ("score",))
    assert backend.works == {}
    assert report.counts[f"fake-{MODEL}-score"].done_before == 3
    assert (tmp_path / "journal.jsonl").read_bytes() == before


@pytest.mark.parametrize(("budget_s", "measured"), [(31.0, [3, 3, 3]), (21.0, [1, 1, 2]), (0.0, [0, 0, 0])])
def test_time_that_a_phase_leaves_flows_to_the_next(
    tmp_path: Path, budget_s: float, measured: list[int]
) -> None:
    """Each phase (4 s to build, 2 s a point) may use its even share of what is left then."""
    backend = FakeBackend(FakeClock(), build_s=4.0, options={"seconds": lambda point: 0.5})
    phases = ("decode", "score", "train")
    alike = (PlannedPoint(1, 120), PlannedPoint(2, 60), PlannedPoint(4, 30))
    report = run(tmp_path, backend, phases, budget_s, dict.fromkeys(phases, alike))
    assert [counts.ok for counts in report.counts.values()] == measured
    assert report.complete == (measured == [3, 3, 3])


def test_the_model_is_freed_also_when_the_journal_is_refused(tmp_path: Path) -> None:
    """A caller that goes on after the error must have its GPU back."""
    run(tmp_path, FakeBackend(FakeClock()), ("score",))
    backend = FakeBackend(FakeClock(), hardware={"gpu_class": "fake", "memory_mib": 2000.0})
    with pytest.raises(ProfileError, match="another machine"):
        run(tmp_path, backend, ("score",))
    assert backend.closed == 1


@pytest.mark.parametrize("phases", [(), ("prefill",), ("score", "score")])
def test_phases_are_checked_before_anything_is_built(tmp_path: Path, phases: tuple[str, ...]) -> None:
    """A typo must not cost the minutes of a model build."""
    backend = FakeBackend(FakeClock())
    with pytest.raises(InputError):
        run(tmp_path, backend, phases)
    assert backend.works == {}
    assert not (tmp_path / "journal.jsonl").exists()


def test_the_class_can_be_renamed_when_profiles_are_written(tmp_path: Path) -> None:
    """A cluster may call its GPUs otherwise than NVML does."""
    run(tmp_path, FakeBackend(FakeClock()), ("score",))
    folders = write_profiles(MeasureJournal(tmp_path / "journal.jsonl"), tmp_path, gpu_class="mine")
    assert [load_profile(folder).file.hardware.gpu_class for folder in folders] == ["mine"]


def test_an_incomplete_setup_is_refused_by_name(tmp_path: Path) -> None:
    """A journal edited by hand must not become a profile."""
    run(tmp_path, FakeBackend(FakeClock()), ("score",))
    path = tmp_path / "journal.jsonl"
    setup, *rows = path.read_text().splitlines()
    broken = json.loads(setup)
    broken["model"].pop("layers")
    path.write_text("\n".join([json.dumps(broken), *rows]) + "\n")
    with pytest.raises(ProfileError, match=r"score: the journal holds no complete profile; got .*layers"):
        write_profiles(MeasureJournal(path), tmp_path)


@needs_source
@pytest.mark.parametrize("size", ["0.5b", "1.5b", "7b"])
def test_the_shipped_profiles_are_what_the_journals_say(tmp_path: Path, size: str) -> None:
    """Nobody edits a measurement by hand."""
    name = f"benchmarks/h200b/qwen2.5-{size}/journal.jsonl"
    shutil.copy(ROOT / name, tmp_path / "journal.jsonl")  # reading may truncate a torn line
    write_profiles(MeasureJournal(tmp_path / "journal.jsonl"), tmp_path, source=name)
    written = sorted(tmp_path.glob("h200b-*/*"))
    assert len(written) == 8
    for path in written:
        assert path.read_bytes() == (shipped_folder() / path.parent.name / path.name).read_bytes()


def test_every_measured_point_is_told(tmp_path: Path) -> None:
    """A run of an hour says how far it is, and what became of each phase."""
    backend, lines = FakeBackend(FakeClock()), []
    plan = {"score": POINTS}
    measure_profile(
        MODEL, tmp_path, ("score",), plan=plan, clock=backend.clock, backend=backend, notes=lines.append
    )
    assert [line.partition("]")[0] for line in lines[:3]] == [f"fake-{MODEL}-score [{n}/3" for n in (1, 2, 3)]
    assert "3 measured, 0 out of memory" in lines[3]


@pytest.mark.skipif(not (ROOT / "profiles").is_dir(), reason="the measured profiles lie in the checkout")
def test_the_comparison_is_what_the_profiles_say(capsys: pytest.CaptureFixture[str]) -> None:
    """A changed measurement or script must not leave an old comparison behind."""
    script = runpy.run_path(str(ROOT / "benchmarks" / "compare_h200.py"))
    assert script["main"]([]) == 0
    assert capsys.readouterr().out == (ROOT / "docs/measurements/h200_comparison.md").read_text(
        encoding="utf-8"
    )
