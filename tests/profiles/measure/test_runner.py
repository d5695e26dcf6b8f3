from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_work import FakeClock, FakeWork

from libra_plan.profiles.measure.journal import MeasureJournal
from libra_plan.profiles.measure.plan import PlannedPoint
from libra_plan.profiles.measure.runner import Counts, MeasureSettings, measure_points

SMALL, MIDDLE, LARGE = PlannedPoint(1, 100), PlannedPoint(4, 200), PlannedPoint(8, 400)


def run(
    path: Path,
    work: FakeWork,
    points: Sequence[PlannedPoint],
    *,
    settings: MeasureSettings | None = None,
    budget_s: float = float("inf"),
) -> tuple[Counts, MeasureJournal]:
    journal = MeasureJournal(path / "journal.jsonl")
    deadline = work.clock() + budget_s
    counts = measure_points(
        "p",
        work,
        points,
        journal,
        settings=settings or MeasureSettings(),
        clock=work.clock,
        deadline=deadline,
        tell=lambda point, row: None,
    )
    return counts, journal


def test_a_point_is_warmed_up_and_repeated(tmp_path: Path) -> None:
    """The warm-up steps are made but not counted in the median."""
    work = FakeWork(FakeClock())
    durations = iter([9.0, 9.0, 0.5, 0.7, 0.6])
    work.seconds = lambda point: next(durations)
    counts, journal = run(tmp_path, work, [SMALL], settings=MeasureSettings(warmup=2, repeats=3))
    row = journal.points["p", SMALL]
    assert counts.ok == 1
    assert work.steps == 5
    assert row["repeats"] == 3
    assert (row["time_low_s"], row["time_s"], row["time_high_s"]) == pytest.approx((0.5, 0.6, 0.7))
    assert row["peak_allocated_mib"] == pytest.approx(1.0)


def test_short_steps_are_timed_together(tmp_path: Path) -> None:
    """Waiting for the device costs microseconds, which would blur a step of one millisecond."""
    work = FakeWork(FakeClock(), seconds=lambda point: 0.003)
    _, journal = run(tmp_path, work, [SMALL], settings=MeasureSettings(warmup=1, repeats=2, timing_s=0.02))
    assert journal.points["p", SMALL]["steps_per_repeat"] == 7
    assert work.steps == 1 + 2 * 7
    assert journal.points["p", SMALL]["time_s"] == pytest.approx(0.003)


def test_a_step_of_several_micro_batches_is_given_per_micro_batch(tmp_path: Path) -> None:
    """The planner multiplies by the micro-batches of a step itself."""
    work = FakeWork(FakeClock(), seconds=lambda point: 3.0, passes=2)
    _, journal = run(tmp_path, work, [SMALL])
    assert journal.points["p", SMALL]["time_s"] == pytest.approx(1.5)


def test_long_points_get_fewer_repeats(tmp_path: Path) -> None:
    """A step of minutes need not be made five times, but one time alone shows no spread."""
    work = FakeWork(FakeClock(), seconds=lambda point: 60.0)
    _, journal = run(tmp_path, work, [SMALL], settings=MeasureSettings(warmup=1, repeats=5, point_s=10.0))
    assert journal.points["p", SMALL]["repeats"] == 2


def test_out_of_memory_is_a_row_and_implies_larger_points(tmp_path: Path) -> None:
    """What does not fit is knowledge for the planner; trying what is larger still wastes time."""
    work = FakeWork(FakeClock(), capacity=500)
    larger, other = PlannedPoint(8, 800), PlannedPoint(2, 200)
    counts, journal = run(tmp_path, work, [LARGE, larger, MIDDLE, other])
    assert work.prepared == [LARGE, MIDDLE, other]
    assert (counts.oom, counts.implied_oom, counts.ok) == (2, 1, 1)
    row = journal.points["p", LARGE]
    assert row["status"] == "oom"
    assert "time_s" not in row
    assert ("p", larger) not in journal.points


def test_memory_is_let_go_after_every_point(tmp_path: Path) -> None:
    """A point that failed must not make the next one fail too."""
    work = FakeWork(FakeClock(), capacity=500, broken={SMALL})
    run(tmp_path, work, [LARGE, SMALL, PlannedPoint(1, 10)])
    assert work.holding == 0
    assert work.resets == 4


def test_one_failure_is_a_row_but_two_in_a_row_end_the_phase(tmp_path: Path) -> None:
    """One bad shape must not end the run; a broken device must, or every point would be lost."""
    points = [PlannedPoint(1, size) for size in (10, 20, 30, 40, 50)]
    work = FakeWork(FakeClock(), broken={points[0], points[2], points[3]})
    counts, journal = run(tmp_path, work, points)
    assert (counts.failed, counts.ok, counts.left) == (3, 1, 1)
    assert journal.points["p", points[0]]["error"] == "RuntimeError: device-side assert"
    assert work.prepared == points[:4]


def test_a_restart_measures_only_what_is_missing(tmp_path: Path) -> None:
    """Also what ran out of memory is done; what failed is tried again."""
    first = FakeWork(FakeClock(), capacity=500, broken={SMALL})
    run(tmp_path, first, [SMALL, LARGE, PlannedPoint(1, 30)])
    again = FakeWork(FakeClock(), capacity=500)
    counts, journal = run(tmp_path, again, [SMALL, LARGE, PlannedPoint(1, 30), PlannedPoint(9, 900)])
    assert again.prepared == [SMALL]
    assert (counts.done_before, counts.ok, counts.implied_oom) == (2, 1, 1)
    assert journal.points["p", SMALL]["status"] == "ok"


def test_a_killed_run_keeps_every_finished_point(tmp_path: Path) -> None:
    """Each point is on disk before the next one starts."""
    work = FakeWork(FakeClock())
    calls = 0

    def dies(point: PlannedPoint) -> float:
        nonlocal calls
        calls += 1
        if point == LARGE:
            raise KeyboardInterrupt
        return 0.1

    work.seconds = dies
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, work, [SMALL, MIDDLE, LARGE])
    assert calls > 2
    assert set(MeasureJournal(tmp_path / "journal.jsonl").points) == {("p", SMALL), ("p", MIDDLE)}


def test_the_budget_stops_between_points(tmp_path: Path) -> None:
    """A run with 20 s ends near 20 s and says what it left."""
    work = FakeWork(FakeClock(), seconds=lambda point: 1.0)
    points = [PlannedPoint(batch, 240 // batch) for batch in (1, 2, 3, 4, 5, 6, 8, 10, 12, 15)]
    begun = work.clock()
    counts, journal = run(
        tmp_path, work, points, settings=MeasureSettings(warmup=1, repeats=4), budget_s=20.0
    )
    assert counts.ok == 4
    assert counts.left == 6
    assert len(journal.points) == 4
    assert work.clock() - begun <= 20.0 + 1e-9


def test_a_large_point_waits_until_a_middle_one_shows_that_it_fits(tmp_path: Path) -> None:
    """From a tiny point alone a large one looks endless; skipping it for good would lose the corners."""
    work = FakeWork(FakeClock(), seconds=lambda point: 0.2)
    tiny, middle, large = PlannedPoint(1, 1), PlannedPoint(1, 30), PlannedPoint(1, 900)
    counts, _ = run(
        tmp_path, work, [tiny, large, middle], settings=MeasureSettings(warmup=1, repeats=4), budget_s=60
    )
    assert work.prepared == [tiny, middle, large]
    assert counts.left == 0


def test_nothing_starts_after_the_deadline(tmp_path: Path) -> None:
    """A phase whose time is gone measures nothing, and says so."""
    work = FakeWork(FakeClock())
    counts, _ = run(tmp_path, work, [SMALL, MIDDLE], budget_s=0.0)
    assert work.prepared == []
    assert counts.left == 2
