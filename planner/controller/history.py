"""List, explain and replay the recorded looks of the loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from libra_plan.planner.controller.configuration_values import ValueCache
from libra_plan.planner.controller.hysteresis import ReplanPolicy, read_policy
from libra_plan.planner.controller.reconcile import reconcile
from libra_plan.planner.controller.state import Decision, LoopState, digest_of, to_bytes
from libra_plan.planner.controller.store import LookRow, OutcomeRow, StateStore, open_record
from libra_plan.planner.problem import Problem

__all__ = ["Explained", "Replayed", "Replays", "derive_again", "explain_look", "history", "replay"]


@dataclass(frozen=True)
class Explained:
    """A look with its decision and its outcome."""

    look: LookRow
    decision: Decision
    outcomes: tuple[OutcomeRow, ...]


@dataclass(frozen=True)
class Replayed:
    """A look derived again: whether decision and state are the same bytes, and the decision now.

    Under another policy `same` is whether the same kind of change was decided for.
    """

    look: LookRow
    same: bool
    decision: Decision


@dataclass(frozen=True)
class Replays:
    """All replayed looks, and the skipped ones before the first look with a kept state."""

    looks: tuple[Replayed, ...]
    passed_over: tuple[int, ...]

    @property
    def otherwise(self) -> tuple[Replayed, ...]:
        """Return the looks whose replay differs from the record."""
        return tuple(each for each in self.looks if not each.same)


def history(
    run: str | Path, *, newest: int = 20, changes: bool = False, state: str | None = None
) -> tuple[LookRow, ...]:
    """List the looks of a run, newest last.

    Parameters
    ----------
    run
        The folder of the running plan.
    newest
        List so many looks at most.
    changes
        List only looks that changed something.
    state
        The record, as in `replan`.

    Returns
    -------
    tuple of LookRow
        Number, time, decision, gains and outcome of each look.

    Raises
    ------
    StateError
        When nothing was recorded yet, or the record is damaged.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> done = lp.replan("profiles", gpus=8, run="run/")
    >>> lp.history("run/")[-1].rule
    'telemetry'
    """
    with open_record(Path(run), state, create=False) as store:
        if not changes:
            return tuple(store.looks(newest=newest))
        return tuple(row for row in store.looks() if row.outcome != "kept")[-newest:]


def explain_look(run: str | Path, look: int, *, state: str | None = None) -> Explained:
    """Explain one look: what was weighed, what decided, what came of it.

    Parameters
    ----------
    run
        The folder of the running plan.
    look
        The number of the look, as `history` lists it.
    state
        The record, as in `replan`.

    Returns
    -------
    Explained
        The look, its whole decision, and promised against observed stage times.

    Raises
    ------
    StateError
        When there is no such look, or the record is damaged.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> done = lp.replan("profiles", gpus=8, run="run/")
    >>> lp.explain_look("run/", done.number).decision.why
    'there is no telemetry: nothing is changed without it'
    """
    with open_record(Path(run), state, create=False) as store:
        decision = store.decision(look)
        return Explained(store.looks(first=look)[0], decision, tuple(store.outcomes(look)))


def replay(
    run: str | Path,
    *,
    replan_policy: str | Path | None = None,
    first: int = 0,
    state: str | None = None,
) -> Replays:
    """Derive recorded decisions again from their recorded inputs, bit for bit, or under another policy.

    Under another policy each look sees the world as it was recorded, so a change that only the other
    policy makes is reported and then taken as not made.

    Parameters
    ----------
    run
        The folder of the running plan.
    replan_policy
        A policy file to try; without one every look is derived under the policy it was made with.
    first
        Number of the first look to derive.
    state
        The record, as in `replan`.

    Returns
    -------
    Replays
        Every look with its decision now, and whether that is the recorded one.

    Raises
    ------
    StateError
        When nothing was recorded yet, or the record is damaged.

    Examples
    --------
    >>> import libra_plan as lp
    >>> plan = lp.solve("profiles", gpus=8, out="run/")
    >>> done = lp.replan("profiles", gpus=8, run="run/")
    >>> lp.replay("run/").otherwise
    ()
    """
    policy = None if replan_policy is None else read_policy(replan_policy)
    with open_record(Path(run), state, create=False) as store:
        passed: list[int] = []
        looks = tuple(derive_again(store, passed, first=first, policy=policy))
        return Replays(looks, tuple(passed))


def derive_again(
    store: StateStore,
    passed: list[int] | None = None,
    *,
    first: int = 0,
    policy: ReplanPolicy | None = None,
) -> Iterator[Replayed]:
    """Derive looks in order, from the first whose state was kept; those before it go to `passed`."""
    state: LoopState | None = None
    problems: dict[str, Problem] = {}
    cache = ValueCache()
    for row in store.looks(first=first):
        if state is None or (policy is None and digest_of(to_bytes(state)) != row.state_before):
            state = store.state_at(row.state_before)
        if state is None:
            if passed is not None:
                passed.append(row.id)
            continue
        if row.problem not in problems:
            problems = {row.problem: store.problem(row.problem)}
        inputs = store.inputs(row.id, problems[row.problem])
        if policy is not None:
            inputs = replace(inputs, policy=policy)
        found = reconcile(inputs, state, cache)
        state, decision = found.adopted if row.adopted else found.kept, found.decision
        if policy is None:
            same = digest_of(to_bytes(decision)) == row.decision_digest
            same = same and digest_of(to_bytes(state)) == row.state_after
        else:
            same = (decision.rung.value, decision.rule) == (row.rung, row.rule)
        yield Replayed(row, same, decision)
