"""A folder for hand-overs, with nothing left running in it."""

from __future__ import annotations

import pytest
from handover_cases import case


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with case(tmp_path) as made:
        yield made
