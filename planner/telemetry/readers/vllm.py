"""vLLM's `/metrics` page, fetched again and again, in the Prometheus text format.

    while sleep 10; do echo "# scrape $(date +%s.%N)"; curl -s localhost:8000/metrics; done >> vllm.prom

Names as in vLLM 0.9 to 0.12 (`vllm/v1/metrics/loggers.py`): counters
`vllm:generation_tokens_total`, `vllm:prompt_tokens_total`, `vllm:request_success_total`; gauges
`vllm:num_requests_running` and `vllm:num_requests_waiting`; sums of `vllm:request_prompt_tokens` and
`vllm:request_generation_tokens`. A file is of one server, and every engine of every server is a
data-parallel rank. A counter
that fell was reset by a restart, and its value was done since.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from libra_plan.planner.telemetry.readers.base import Reader, ReaderFacts
from libra_plan.planner.telemetry.work_windows import SkippedRecord, WorkWindow
from libra_plan.profiles.importers.records import SourceFiles

__all__ = ["READER"]

_SCRAPE = re.compile(r"^# scrape ([0-9]{1,12}(?:\.[0-9]*)?)[ \t\r]*$", re.MULTILINE)
_PREFIX = "vllm:"

Page = dict[tuple[int, str], float]
"""Values by engine and name, without the prefix; series that differ in other labels added up."""


def _read(source: SourceFiles, facts: ReaderFacts, left_out: list[SkippedRecord]) -> Iterator[WorkWindow]:
    ranks: dict[tuple[str, int], int] = {}
    for name, text in source.texts:
        before: tuple[float, Page] | None = None
        for after in _sound_pages(name, text, left_out):
            for engine in sorted({engine for engine, _ in after[1]}) if before is not None else ():
                rank = ranks.setdefault((name, engine), len(ranks))
                yield _window(facts.task, rank, engine, before or after, after)
            before = after


def _sound_pages(name: str, text: str, left_out: list[SkippedRecord]) -> Iterator[tuple[float, Page]]:
    """Yield the pages of a server in the order of time, without those that hold no metrics."""
    latest = -math.inf
    for where, at_s, page_text in _pages(name, text):
        try:
            page = _page(page_text)
        except ValueError as problem:
            left_out.append(SkippedRecord(where, f"not a page of metrics: {problem}"))
            continue
        if not page:
            left_out.append(SkippedRecord(where, f"no metric begins with {_PREFIX}: the engine was down"))
        elif at_s <= latest:
            left_out.append(SkippedRecord(where, f"the clock went back, from {latest:g} to {at_s:g} s"))
        else:
            latest = at_s
            yield at_s, page


def _pages(name: str, text: str) -> Iterator[tuple[str, float, str]]:
    """Yield every page with where it begins and when it was fetched; a torn last one is left out."""
    marks = list(_SCRAPE.finditer(text))
    ends = [mark.start() for mark in marks[1:]]
    if text.endswith("\n"):
        ends.append(len(text))
    line, counted = 1, 0
    for mark, end in zip(marks, ends, strict=False):
        line, counted = line + text.count("\n", counted, mark.start()), mark.start()
        yield f"{name}:{line}", float(mark[1]), text[mark.end() : end]


def _page(text: str) -> Page:
    """Parse a page; raise a ValueError when it is none."""
    from prometheus_client.parser import text_string_to_metric_families

    page: Page = {}
    for family in text_string_to_metric_families(text + "\n"):
        for sample in family.samples:
            if not sample.name.startswith(_PREFIX) or not math.isfinite(sample.value):
                continue
            engine = sample.labels.get("engine", "0")
            key = (int(engine) if engine.isdecimal() else 0, sample.name.removeprefix(_PREFIX))
            page[key] = page.get(key, 0.0) + sample.value
    return page


def _window(
    task: str, rank: int, engine: int, before: tuple[float, Page], after: tuple[float, Page]
) -> WorkWindow:
    (start_s, then), (end_s, now) = before, after
    delta = {
        name: _grown(then.get((own, name)), value) for (own, name), value in now.items() if own == engine
    }
    waiting, running = now.get((engine, "num_requests_waiting")), now.get((engine, "num_requests_running"))
    queues = {} if waiting is None else {"rollout": waiting}
    finished = delta.get("request_success_total")
    return WorkWindow(
        start_s=start_s,
        end_s=end_s,
        utc_s=end_s,
        task=task,
        role="rollout",
        dp_rank=rank,
        rank=rank,
        source=f"engine-{rank}",
        clock="scrapes",
        tokens=delta.get("generation_tokens_total"),
        samples=finished,
        queues=queues,
        longest=queues,
        batch_sequences=running or None,
        seq_len_tokens=_mean_context(delta),
    )


def _grown(then: float | None, now: float) -> float:
    """Return by how much a counter grew; one that fell, or is new, began at 0 within the window."""
    return now if then is None or now < then else now - then


def _mean_context(delta: Mapping[str, float]) -> float | None:
    """Return the mean context while decoding, tokens: prompt and half of what was written."""
    prompts, outputs = delta.get("request_prompt_tokens_sum"), delta.get("request_generation_tokens_sum")
    finished = delta.get("request_generation_tokens_count")
    if not finished or prompts is None or outputs is None:
        return None
    return (prompts + outputs / 2) / finished


READER = Reader("vllm", "vLLM's /metrics pages, one after the other", (".prom", ".txt"), _read)
