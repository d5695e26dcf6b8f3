"""Counters of loops: windows, ranks, processes, and everything that may go wrong beside a loop."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from counter_cases import Clock, lines, make, windows
from hypothesis import given
from hypothesis import strategies as st

import libra_plan
from libra_plan.errors import InputError


@pytest.fixture
def clock():
    return Clock()


def test_a_window_holds_what_was_done_in_it(tmp_path, clock):
    """The line says whose work it is, from when to when, and how much."""
    counter = make(tmp_path, clock, dp_rank=3, rank=6, layout={"tp": 2})
    for _ in range(5):
        clock.wait(4.0)
        counter.add(tokens=100, samples=2, steps=1)
    counter.close()
    first, second = windows(tmp_path)
    assert (first.task, first.role, first.dp_rank, first.rank, first.tp) == ("agent", "actor", 3, 6, 2)
    assert (first.start_s, first.end_s, first.tokens, first.samples, first.steps) == (100, 112, 300, 6, 3)
    assert (second.start_s, second.end_s, second.tokens) == (112, 120, 200)
    assert first.episodes is None  # never counted is unknown, not 0


def test_a054_the_rate_is_of_the_window_not_of_the_run(tmp_path, clock):
    """1000 tokens a step of a second stay 1000 tokens/s, however long the run is."""
    counter = make(tmp_path, clock, window_s=5.0)
    for _ in range(50):
        clock.wait(1.0)
        counter.add(tokens=1000)
    assert [window.tokens / window.length_s for window in windows(tmp_path)] == [1000.0] * 10


def test_a055_the_first_sample_after_a_long_gap_survives(tmp_path, clock):
    """After an idle hour the window of the gap holds what ended it, and the burst has its own."""
    counter = make(tmp_path, clock, window_s=120.0)
    clock.wait(3600.0)
    for _ in range(130):
        counter.add(tokens=10)
        clock.wait(1.0)
    counter.close()
    found = windows(tmp_path)
    assert sum(window.tokens for window in found) == 1300
    assert (found[0].length_s, found[0].tokens) == (3600.0, 10)
    assert found[1].tokens / found[1].length_s == pytest.approx(10.0)


def test_a052_waiting_is_the_sum_of_all_pauses(tmp_path, clock):
    """Pauses of 10, 20 and 15 s in a minute are 0.75 idle, not the last of them."""
    counter = make(tmp_path, clock, window_s=60.0)
    for pause in (10, 20, 15):
        with counter.waiting():
            clock.wait(pause)
        clock.wait(5)
        counter.add(tokens=1)
    (window,) = windows(tmp_path)
    assert window.waiting_s / window.length_s == 0.75
    assert window.working_s == 15


def test_waits_that_overlap_count_once_and_waits_over_a_border_count_on_both_sides(tmp_path, clock):
    """No rank waits longer than there was time."""
    counter = make(tmp_path, clock, window_s=10.0)
    with counter.waiting():
        clock.wait(4.0)
        with counter.waiting():
            clock.wait(8.0)
        counter.add(tokens=1)  # 12 s are over: a window ends inside the wait
        clock.wait(3.0)
    clock.wait(7.0)
    counter.add(tokens=1)
    assert [(window.length_s, window.waiting_s) for window in windows(tmp_path)] == [
        (12.0, 12.0),
        (10.0, 3.0),
    ]


def test_queues_staleness_shape_and_memory_are_in_the_same_record(tmp_path, clock):
    """One line tells how the role is fed: queue lengths, lag in versions, and what a step is."""
    counter = make(tmp_path, clock)
    counter.shape(8, 1024)
    for length in (5, 40, 12):
        counter.queue("experience", length)
    counter.staleness(1, samples=3)
    counter.staleness(5)
    counter.peak_memory(60_000)
    counter.peak_memory(50_000)
    clock.wait(10)
    counter.add(steps=1)
    clock.wait(10)
    counter.add(steps=1)
    first, second = windows(tmp_path)
    assert (first.queues, first.longest) == ({"experience": 12}, {"experience": 40})
    assert (first.staleness, first.stalest) == (2.0, 5.0)
    assert (first.batch_sequences, first.seq_len_tokens, first.peak_reserved_mib) == (8, 1024, 60_000)
    assert (second.queues, second.staleness, second.peak_reserved_mib) == ({"experience": 12}, None, None)


def test_a_window_without_length_lends_its_counts_to_the_next(tmp_path, clock):
    """A flush at the moment a window began must neither divide by 0 nor lose anything."""
    counter = make(tmp_path, clock)
    counter.add(tokens=7)
    counter.flush()
    clock.wait(2)
    counter.add(tokens=3)
    counter.close()
    (window,) = windows(tmp_path)
    assert (window.tokens, window.length_s) == (10, 2)


def test_a078_the_wall_clock_may_jump(tmp_path, clock):
    """Lengths are those of the clock that only goes forward."""
    counter = make(tmp_path, clock)
    for jump in (0, -3600, 7200):
        clock.wait(10)
        clock.wall_s += jump
        counter.add(tokens=50)
    assert [window.tokens / window.length_s for window in windows(tmp_path)] == [5.0, 5.0, 5.0]


def test_threads_lose_nothing(tmp_path, clock):
    """Rollouts count from many threads at once, and threads come and go."""
    counter = make(tmp_path, clock)

    def work():
        for _ in range(2000):
            counter.add(tokens=1, episodes=1)

    for _ in range(3):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counter.totals() == {"tokens": 24_000, "samples": 0, "episodes": 24_000, "steps": 0}
    clock.wait(1)
    counter.close()
    (window,) = windows(tmp_path)
    assert window.episodes == 24_000


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0.0, 30.0)), min_size=1, max_size=60))
def test_windows_add_up_to_what_was_counted(tmp_path_factory, adds):
    """However adds fall into windows, none is lost or counted twice, and windows follow on each other."""
    folder, clock = tmp_path_factory.mktemp("sums"), Clock()
    counter = make(folder, clock)
    for tokens, seconds in adds:
        clock.wait(seconds)
        counter.add(tokens=tokens)
    clock.wait(1.0)
    counter.close()
    found = windows(folder) if any(folder.iterdir()) else []
    assert sum(window.tokens or 0 for window in found) == sum(tokens for tokens, _ in adds)
    assert all(later.start_s == earlier.end_s for earlier, later in pairwise(found))


FORKING = """
import os, sys, libra_plan
now_s = [100.0]
counter = libra_plan.counter(sys.argv[1], task="t", role="r", clock=lambda: now_s[0], environment={})
now_s[0] = 110.0
counter.add(tokens=5)
counter.add(tokens=1)
if os.fork() == 0:
    now_s[0] = 120.0
    counter.add(tokens=70)
    counter.close()
    os._exit(0)
assert os.wait()[1] == 0
now_s[0] = 120.0
counter.close()
"""


def test_a_forked_process_counts_for_itself(tmp_path):
    """A data loader's worker inherits the counter; what the parent counted must not be written twice."""
    subprocess.run([sys.executable, "-c", FORKING, str(tmp_path)], check=True, timeout=60)
    assert sorted(window.tokens for window in windows(tmp_path)) == [1, 5, 70]


def test_what_was_counted_is_written_when_the_program_ends(tmp_path):
    """A loop that ends between two windows, without close(), has still done its work."""
    code = (
        "import libra_plan, sys, time; c = libra_plan.counter(sys.argv[1], task='t', role='r');"
        "c.add(tokens=9); time.sleep(0.01)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    (window,) = windows(tmp_path)
    assert window.tokens == 9


def test_a_training_loop_imports_next_to_nothing():
    """Counting must not bring numpy, a solver or a schema reader into the ranks."""
    code = (
        "import sys, libra_plan; libra_plan.counter; libra_plan.recommend_batch;"
        "print(sorted({name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=_bare(),
    )
    assert done.returncode == 0, done.stderr
    loaded = set(eval(done.stdout))  # a list of names that we printed
    assert loaded <= {"__main__", "libra_plan", "sitecustomize", "usercustomize"}, loaded


def _bare():
    return {**os.environ, "PYTHONPATH": str(Path(libra_plan.__file__).resolve().parents[1])}


def test_the_launcher_says_whose_work_it_is(tmp_path):
    """A role that one of our launchers started needs to pass nothing but the folder."""
    known = {
        "LIBRA_PLAN_TASK": "t",
        "LIBRA_PLAN_ROLE": "r",
        "LIBRA_PLAN_TP": "2",
        "RANK": "5",
        "LIBRA_PLAN_DP": "4",
        "LIBRA_PLAN_GENERATION": "3",
    }
    clock = Clock()
    counter = libra_plan.counter(tmp_path, clock=clock, environment=known)
    clock.wait(1)
    counter.add(tokens=1)
    counter.close()
    (line,) = lines(tmp_path)
    assert [line[key] for key in ("task", "role", "dp_rank", "rank", "tp", "dp")] == ["t", "r", 2, 5, 2, 4]
    assert (line["generation"], windows(tmp_path)[0].generation) == (3, 3)


@pytest.mark.parametrize(
    ("rank", "degrees", "world", "expected"),
    [
        (5, {"tp": 2}, 8, 2),
        (7, {}, 8, 7),
        (5, {"tp": 2, "pp": 2}, 8, 0),  # second stage: ranks 4-7, of which 5 is tp 1 of dp 0
        (7, {"tp": 2, "pp": 2}, 8, 1),
        (3, {"tp": 2, "cp": 2}, 8, 0),
    ],
)
def test_the_data_parallel_rank_follows_from_rank_and_degrees(tmp_path, rank, degrees, world, expected):
    """All ranks that hold the same samples must name the same data-parallel rank (A053)."""
    known = {"RANK": str(rank), "WORLD_SIZE": str(world)}
    clock = Clock()
    counter = libra_plan.counter(tmp_path, task="t", role="r", layout=degrees, clock=clock, environment=known)
    clock.wait(1)
    counter.add(tokens=1)
    counter.close()
    assert lines(tmp_path)[0]["dp_rank"] == expected


def test_a_counter_that_knows_no_role_is_refused(tmp_path):
    """Counts of nobody would be found out only after the run."""
    with pytest.raises(InputError, match="whose work"):
        libra_plan.counter(tmp_path, task="t", environment={})
    with pytest.raises(InputError, match="a window has a length"):
        libra_plan.counter(tmp_path, task="t", role="r", window_s=0.0, environment={})


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_of_multiprocessing_writes_what_it_counted(tmp_path, method):
    """It ends without `atexit`, as ranks that torch.multiprocessing starts do."""
    code = (
        "import libra_plan, multiprocessing, sys\n"
        "def work(folder):\n"
        "    global kept\n"
        "    kept = libra_plan.counter(folder, task='t', role='r')\n"
        "    kept.add(tokens=9)\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context(sys.argv[2]).Process(target=work, args=(sys.argv[1],))\n"
        "    child.start(); child.join()\n"
    )
    script = tmp_path / "program.py"
    script.write_text(code)
    subprocess.run([sys.executable, script, tmp_path / "out", method], check=True, timeout=60)
    (window,) = windows(tmp_path / "out")
    assert window.tokens == 9


def test_a_counter_that_goes_out_of_use_has_written_all(tmp_path, clock):
    """It is often a local of the function that trains."""
    made = make(tmp_path, clock)
    clock.wait(1.0)
    made.add(tokens=4)
    del made
    gc.collect()
    (window,) = windows(tmp_path)
    assert window.tokens == 4


class Scalar:
    """What NumPy and PyTorch give: a number, but none of Python's."""

    def __init__(self, value):
        self.value = value

    def __float__(self):
        return float(self.value)

    def __bool__(self):
        return bool(self.value)


def test_numbers_of_other_libraries_count_as_what_they_are(tmp_path, clock):
    """`batch.mask.sum()` is a tensor; in 32 bits it would stop counting at 16.8 million."""
    made = make(tmp_path, clock)
    made.add(tokens=Scalar(3), samples=np.float32(2.0**24))
    made.add(samples=np.float32(1.0), steps=np.int64(1))
    made.queue("experience", Scalar(7))
    made.staleness(np.float32(2.0), samples=np.int64(4))
    made.shape(Scalar(8), np.int64(100))
    made.peak_memory(Scalar(5.0))
    clock.wait(1.0)
    made.flush()
    (window,) = windows(tmp_path)
    assert (window.tokens, window.samples, window.steps) == (3.0, 2.0**24 + 1.0, 1.0)
    assert (window.queues, window.staleness) == ({"experience": 7.0}, 2.0)
    assert (window.batch_sequences, window.seq_len_tokens, window.peak_reserved_mib) == (8.0, 100.0, 5.0)


@pytest.mark.parametrize("nothing", [math.nan, math.inf, -1.0, "many", object()])
def test_what_is_no_number_is_told_and_spoils_nothing(tmp_path, clock, nothing):
    """One loss that was not a number ended the counting for good."""
    made = make(tmp_path, clock)
    made.add(tokens=5, samples=nothing)
    made.queue("experience", nothing)
    made.staleness(nothing)
    made.shape(nothing, 5)
    made.peak_memory(nothing)
    assert "is no number that counts" in made.error
    clock.wait(1.0)
    made.add(tokens=2)
    made.flush()
    (window,) = windows(tmp_path)
    assert (window.tokens, window.samples) == (7, None)
    assert (window.queues, window.staleness, window.peak_reserved_mib) == ({}, None, None)
    assert made.error is None
