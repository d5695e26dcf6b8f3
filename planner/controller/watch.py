"""The loop of `watch`: when it looks, how it handles signals, and how it reports its health."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from libra_plan.errors import InputError, LibraError, LockedError, TimeLimitError
from libra_plan.notes import Notes, log_note
from libra_plan.planner.controller.configuration_values import ValueCache
from libra_plan.planner.controller.facts import sources_of
from libra_plan.planner.controller.hysteresis import OVERDUE_LOOKS, OVERDUE_S, ReplanPolicy, read_policy
from libra_plan.planner.controller.replan import Replanned, locked, look_at
from libra_plan.planner.controller.store import open_record, require_folder

__all__ = ["Health", "Signals", "serve", "watch", "watch_loop"]


class Signals:
    """Handles SIGHUP (read the policy again), SIGTERM and SIGINT (end after this look)."""

    def __init__(self) -> None:
        self.reload = False
        self._woken = threading.Event()
        self.ended = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.reload = True
        else:
            self.ended = True
        self._woken.set()

    def sleep(self, seconds: float) -> None:
        """Wait until the time is over or a signal comes."""
        self._woken.wait(seconds)
        self._woken.clear()


@dataclass
class Health:
    """The health of the loop: looks by outcome, the last look, and whether looks succeed."""

    every_s: float = 60.0
    looks: dict[tuple[str, str], int] = field(default_factory=dict)
    failures: int = 0
    last_failed: str | None = None
    last_look: int = 0
    last_took_s: float = 0.0
    last_at_s: float | None = None
    generation: int = 0

    def took(self, report: Replanned, seconds: float, at_s: float) -> None:
        """Record a look that succeeded."""
        key = (report.decision.rung.value, report.outcome)
        self.looks[key] = self.looks.get(key, 0) + 1
        self.last_look, self.last_took_s, self.last_at_s = report.number, seconds, at_s
        self.generation, self.last_failed = report.generation, None

    def failed(self, said: str) -> None:
        """Record a look that failed."""
        self.failures, self.last_failed = self.failures + 1, said

    def healthy(self, now_s: float) -> tuple[bool, str]:
        """Return whether the last look succeeded and is not overdue, and why; True before any look."""
        if self.last_failed is not None:
            return False, self.last_failed
        most_s = OVERDUE_LOOKS * self.every_s + OVERDUE_S
        if self.last_at_s is not None and now_s - self.last_at_s > most_s:
            return False, f"the last look was {now_s - self.last_at_s:.0f} s ago"
        return True, f"look {self.last_look}"


def watch(
    source: str | Path,
    *,
    run: str | Path = "run",
    replan_policy: str | Path | None = None,
    state: str | None = None,
    dry_run: bool = False,
    looks: int | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    show: Callable[[Replanned], None] = lambda done: None,
    notes: Notes = log_note,
    **asked: Any,
) -> None:
    """Re-plan every `every_s` seconds of the policy, until a signal ends it.

    SIGHUP reads the policy anew; SIGTERM and SIGINT end it after the look. Call it in the main thread.

    Parameters
    ----------
    source, run, replan_policy, state, dry_run, notes, **asked
        As in `replan`, with its further arguments on the cluster, the prices and the telemetry.
    looks
        Leave after so many looks.
    port, host
        Where to serve `/healthz`, whether looks succeed, and `/metrics`, which counts them.
    show
        Called with every look that was taken.

    Raises
    ------
    StateError
        If there is no plan in the folder, or the record is damaged.
    InputError
        If the first look finds bad input; later looks are tried again.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> lp.watch("profiles", gpus=8, run="run/", looks=1, show=lambda done: print(done.outcome))
    kept
    """
    sources = sources_of(source, run, **asked)
    thresholds, cache, health = read_policy(replan_policy), ValueCache(), Health()
    require_folder(sources.run)

    def once(current: ReplanPolicy) -> Replanned:
        with locked(sources.run, 0.0):
            done = look_at(sources, store, current, dry_run=dry_run, cache=cache, notes=notes)
        show(done)
        return done

    serving = nullcontext() if port is None else serve(host, port, health, notes)
    with open_record(sources.run, state, lead=True) as store, serving, Signals() as signals:
        watch_loop(once, thresholds, lambda: read_policy(replan_policy), health, signals, looks, notes=notes)


def watch_loop(
    once: Callable[[ReplanPolicy], Replanned],
    policy: ReplanPolicy,
    read: Callable[[], ReplanPolicy],
    health: Health,
    signals: Signals,
    looks: int | None,
    clock: Callable[[], float] = time.monotonic,
    notes: Notes = log_note,
) -> None:
    """Decide every `every_s`; a look that fails for a known reason is reported and tried again.

    Bad input at the very first look ends the watch, since only the user can mend it.
    """
    done = 0
    while not signals.ended:
        if signals.reload:
            signals.reload = False
            policy = _reread(read, policy, notes)
        health.every_s = policy.every_s
        begun = clock()
        try:
            report = once(policy)
            health.took(report, clock() - begun, clock())
        except (LockedError, TimeLimitError) as problem:
            health.failed(problem.message)
            notes(problem.message)
        except LibraError as problem:
            if health.last_at_s is None:
                raise
            health.failed(problem.message)
            notes(f"this look failed: {problem.message}")
        done += 1
        if looks is not None and done >= looks:
            return
        left_s = policy.every_s - (clock() - begun)
        if left_s > 0 and not signals.ended:
            signals.sleep(left_s)


def _reread(read: Callable[[], ReplanPolicy], policy: ReplanPolicy, notes: Notes) -> ReplanPolicy:
    """Read the policy again; the old one stays in force if the new one cannot be read."""
    try:
        fresh = read()
    except InputError as problem:
        notes(f"the policy stays as it was: {problem.message}")
        return policy
    notes("the policy was read anew")
    return fresh


@contextmanager
def serve(host: str, port: int, health: Health, notes: Notes = log_note) -> Iterator[int]:
    """Serve /healthz and /metrics in a thread of its own; return the port."""
    from wsgiref.simple_server import WSGIRequestHandler, make_server

    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry()
    registry.register(_Metrics(health))
    metrics = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start: Any) -> Any:
        if environ.get("PATH_INFO") != "/healthz":
            return metrics(environ, start)
        well, said = health.healthy(time.monotonic())
        start(
            "200 OK" if well else "503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8")]
        )
        return [f"{said}\n".encode()]

    class Quiet(WSGIRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            return

    try:
        server = make_server(host, port, answer, handler_class=Quiet)
    except OSError as problem:
        raise InputError("cannot serve there", got=f"{host}:{port}: {problem.strerror}") from None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    notes(f"serving http://{host}:{server.server_port}/metrics and /healthz")
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Metrics:
    """Collects the loop's figures whenever they are requested."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def collect(self) -> Iterator[Any]:
        """List the metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        looks = CounterMetricFamily(
            "libra_plan_looks", "Looks by decision and outcome.", labels=["decision", "outcome"]
        )
        for (rung, outcome), count in sorted(self._health.looks.items()):
            looks.add_metric([rung, outcome], count)
        yield looks
        yield CounterMetricFamily(
            "libra_plan_looks_failed", "Looks that failed.", value=self._health.failures
        )
        figures = {
            "libra_plan_last_look": ("Number of the last look.", self._health.last_look),
            "libra_plan_last_look_seconds": ("Seconds the last look took.", self._health.last_took_s),
            "libra_plan_generation": ("Generation of the current manifest.", self._health.generation),
            "libra_plan_healthy": (
                "1 when the last look went well.",
                int(self._health.healthy(time.monotonic())[0]),
            ),
        }
        for name, (text, value) in figures.items():
            yield GaugeMetricFamily(name, text, value=value)
