"""Close every record that a test opened: Python 3.13 warns of databases that are left open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from libra_plan.planner.controller.store import StateStore


@pytest.fixture(autouse=True)
def _all_closed() -> Iterator[None]:
    opened: list[StateStore] = []
    real = StateStore.open

    def noted(*words: object, **options: object) -> StateStore:
        opened.append(real(*words, **options))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateStore, "open", staticmethod(noted))
        yield
    for store in opened:
        store.close()
