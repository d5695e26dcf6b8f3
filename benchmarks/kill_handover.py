"""Kill the supervisor of real hand-overs with SIGKILL at random points, and see what is left.

    python benchmarks/kill_handover.py --kills 200
    python benchmarks/kill_handover.py --each-record    # before and after each record of its journal

Tiny training loops hold GPUs that are lock files. One run is moved to and fro; every hand-over is
killed at a random moment, often its continuation, too, and then continued to its end. Some are
bound to fail: the new generation dies at its start, or trainers do not answer the request. After
each one: no checkpointed step is lost, no process is unrecorded, no GPU has two holders, and what
runs is the old or the new plan. Exit status 1 when anything of that did not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from handover_cases import Case, Placement, case

from libra_plan.planner.launchers.manifest import Manifest
from libra_plan.planner.runtime.apply import apply, resume
from libra_plan.planner.runtime.journal import JOURNAL, Entry, Record, RunJournal, read_journal

SHAPES: tuple[Placement, ...] = (
    {"a": {"actor": [0, 1], "rollout": [2]}, "b": {"actor": [3]}, "still": {"rollout": [5]}},
    {"a": {"actor": [0], "rollout": [2]}, "b": {"actor": [1, 3]}, "still": {"rollout": [5]}},
    {
        "a": {"actor": [3], "rollout": [2]},
        "b": {"actor": [0]},
        "c": {"actor": [1]},
        "still": {"rollout": [5]},
    },
)
KINDS = ("good", "good", "good", "good", "dies", "deaf")
QUICK = {"checkpoint_wait_s": 1.0, "memory_wait_s": 5.0, "start_window_s": 10.0, "ready_wait_s": 20.0}
LONGEST_S = 1.0
APPEND = RunJournal.append


@dataclass
class Tally:
    """What came of it; kills before the hand-over began or after it ended are counted apart."""

    kills: int = 0
    kills_outside: int = 0
    hand_overs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    last_records: Counter[str] = field(default_factory=Counter)  # where the supervisor was killed
    faults: list[str] = field(default_factory=list)


class Doomed:
    """Stand in for `RunJournal.append`: it kills its own process before or after the k-th record."""

    def __init__(self, at: int, after: bool) -> None:
        self.left, self.after = at, after

    def method(self) -> Callable[[RunJournal, Record], Entry]:
        """Return the function to put in the method's place."""

        def append(journal: RunJournal, record: Record) -> Entry:
            self.left -= 1
            if self.left < 0 and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            entry = APPEND(journal, record)
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return entry

        return append


def supervise(where: Case, manifest: Manifest | None) -> None:
    """Hand over, or go on with what is open, in the calling process."""
    settings = where.settings(**QUICK)
    if where.state().open:
        resume(folder=where.run, dry_run=False, settings=settings)
    elif manifest is not None:
        apply(manifest, folder=where.run, dry_run=False, settings=settings)


def killed(where: Case, manifest: Manifest, delay_s: float | None, doom: Doomed | None = None) -> bool:
    """Supervise in a child, and kill it so long after its first record, or at its doom.

    Say whether that came in time.
    """
    journal = where.run / JOURNAL
    before = journal.stat().st_size
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if doom is not None:
                RunJournal.append = doom.method()  # type: ignore[method-assign]
            supervise(where, manifest)
            status = 0
        finally:
            os._exit(status)
    if delay_s is not None:
        while journal.stat().st_size == before and not has_ended(child):
            time.sleep(0.001)
        time.sleep(delay_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit("the supervisor failed by itself")
    return os.WIFSIGNALED(status)


def has_ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def under_fire(where: Case, new: Manifest, rng: random.Random, tally: Tally) -> None:
    """Begin a hand-over and kill its supervisor, then perhaps those that go on with it."""
    while killed(where, new, rng.uniform(0.0, LONGEST_S)):
        if not where.state().open:
            tally.kills_outside += 1
            return
        tally.kills += 1
        tally.last_records[type(read_journal(where.run)[-1].record).__name__] += 1
        if rng.random() < 0.6:
            return


def finish(where: Case, old: Manifest, new: Manifest, kind: str, tally: Tally) -> Manifest:
    """Go on to the end, look for faults, and give the manifest that runs."""
    supervise(where, new if where.state().running == old.metadata.digest else None)
    state = where.state()
    runs = new if state.running == new.metadata.digest else old
    found = [*where.faults(), *where.runs(runs)]
    if state.open or state.running != runs.metadata.digest:
        found.append(f"the end is neither plan: {state.stuck or state.running}")
    if kind == "dies" and runs is new:
        found.append("a plan that cannot start is said to run")
    tally.hand_overs += 1
    tally.outcomes[f"{kind}: {'new' if runs is new else 'old'} plan"] += 1
    tally.faults += [f"hand-over {tally.hand_overs} ({kind}): {each}" for each in found]
    return runs


@contextmanager
def kind_of(where: Case, kind: str) -> Iterator[None]:
    """Make trainers deaf meanwhile, if that is the kind."""
    deaf = where.folder / "deaf"
    if kind == "deaf":
        deaf.touch()
    yield
    deaf.unlink(missing_ok=True)


def planned(where: Case, shape: int, runs: Manifest, kind: str) -> Manifest:
    """Plan another placement after the one that runs."""
    return where.manifest(SHAPES[shape], runs, words={"b": ["dies"]} if kind == "dies" else None)


def at_random(where: Case, runs: Manifest, kills: int, rng: random.Random, tally: Tally) -> None:
    """Kill at random moments until there were so many kills in the middle of a hand-over."""
    shape = 0
    while tally.kills < kills:
        kind = rng.choice(KINDS)
        shape = (shape + rng.choice((1, 2))) % len(SHAPES)
        new = planned(where, shape, runs, kind)
        with kind_of(where, kind):
            under_fire(where, new, rng, tally)
            runs = finish(where, runs, new, kind, tally)
        print(f"\r{tally.kills} kills, {tally.hand_overs} hand-overs", end="", file=sys.stderr)


def at_each_record(where: Case, runs: Manifest, stride: int, tally: Tally) -> None:
    """Kill once before and once after each record, until hand-overs of either kind have no more records."""
    shape = 0
    for kind in ("good", "dies"):
        for after in (False, True):
            for at in range(0, 1000, stride):
                shape = 1 - shape
                new = planned(where, shape, runs, kind)
                came = killed(where, new, None, Doomed(at, after))
                tally.kills += came
                if came:
                    last = read_journal(where.run)[-1].record
                    tally.last_records[type(last).__name__] += 1
                runs = finish(where, runs, new, kind, tally)
                if not came:
                    break
                print(f"\r{kind}: record {at}", end="", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="kills in the middle of hand-overs")
    parser.add_argument("--each-record", action="store_true", help="not at random: at each record")
    parser.add_argument("--stride", type=int, default=1, help="with --each-record: every so many records")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    tally, begun = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, case(Path(folder)) as where:
        runs = where.manifest(SHAPES[0])
        settings = where.settings(**QUICK)
        assert apply(runs, folder=where.run, dry_run=False, settings=settings).outcome == "new"
        if chosen.each_record:
            at_each_record(where, runs, chosen.stride, tally)
        else:
            at_random(where, runs, chosen.kills, random.Random(chosen.seed), tally)
    result = {
        "kills": tally.kills,
        "kills_outside": tally.kills_outside,
        "hand_overs": tally.hand_overs,
        "seconds": round(time.monotonic() - begun),
        "outcomes": dict(sorted(tally.outcomes.items())),
        "killed_after_record": dict(tally.last_records.most_common()),
        "faults": tally.faults,
    }
    print(file=sys.stderr)
    print(json.dumps(result, indent=2))
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
