"""The line of a log that says why a role ended."""

from __future__ import annotations

import pytest

from libra_plan.planner.runtime.role_logs import telling_line

TRACEBACK = (
    'Traceback (most recent call last):\n  File "x.py", line 1\n'
    "ModuleNotFoundError: No module named 'trl'\n"
)
TORCHRUN = (
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
    "=====\ntrain.py FAILED\n-----\nexitcode  : 1 (pid: 7)\n=====\n"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step 1\nout of patience\n\n", "out of patience"),
        (TRACEBACK, "ModuleNotFoundError: No module named 'trl'"),
        (TRACEBACK + TORCHRUN, "ModuleNotFoundError: No module named 'trl'"),
        ("[rank0]: torch.OutOfMemoryError: CUDA out of memory\nbye\n", "[rank0]: torch.OutOfMemoryError"),
        ("=====\n", ""),
    ],
)
def test_the_error_of_the_role_is_told_and_not_what_torchrun_adds(tmp_path, text, said):
    """The last lines of torchrun say only that a rank failed, which everybody knows by then."""
    (tmp_path / "log").write_text(text)
    found = telling_line(tmp_path / "log")
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_log_that_cannot_be_read_tells_nothing(tmp_path):
    """Why a role ended must not be hidden by how its log is kept."""
    assert telling_line(tmp_path / "none") == ""
