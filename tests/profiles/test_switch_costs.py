"""The recorded costs of moves, and the price they give a task."""

from __future__ import annotations

import msgspec
import pytest

from libra_plan.errors import ProfileError
from libra_plan.profiles.switch_costs import RoleSwitch, SwitchRecord, read_switch_costs, switch_prices


def record(lost_s, task="t", action="move"):
    return SwitchRecord(
        schema_version=1,
        task=task,
        action=action,
        gpu_class="h200_sxm",
        gpus_before=2,
        gpus_after=2,
        checkpoint_s=3.0,
        drain_s=1.0,
        save_s=2.0,
        stop_s=1.0,
        roles=(RoleSwitch(role="actor", gpus=2, start_s=None, load_s=None, warm_up_s=None),),
        lost_s=lost_s,
        at="2026-01-01T00:00:00+00:00",
    )


def test_the_price_is_the_90th_percentile_of_at_least_five_moves():
    """A plan that pays for itself only after a lucky move does not pay for itself."""
    assert switch_prices([record(float(n)) for n in range(4)]) == {}
    prices = switch_prices([record(float(n)) for n in range(1, 11)])
    assert (prices["t"].p90_s, prices["t"].records) == (9.0, 10)
    assert switch_prices([record(5.0)] * 5)["t"].p90_s == 5.0


def test_only_whole_moves_count():
    """A start alone costs less, and a cost of which a part is unknown is none."""
    others = [record(1.0, action="start"), record(1.0, action="stop"), record(None), record(1.0, task="u")]
    assert switch_prices(others * 10 + [record(7.0)] * 5) == {
        **switch_prices([record(7.0)] * 5),
        **switch_prices([record(1.0, task="u")] * 10),
    }


def test_old_moves_are_forgotten():
    """The model, the file system and the number of GPUs change."""
    prices = switch_prices([*[record(100.0)] * 50, *[record(3.0)] * 20])
    assert (prices["t"].p90_s, prices["t"].records) == (3.0, 20)


def test_a_wrong_line_is_named_and_one_cut_off_is_not_read(tmp_path):
    """Who edits the file must find the line; a crash while writing is nobody's fault."""
    path = tmp_path / "switch_costs.jsonl"
    line = msgspec.json.encode(record(1.0)) + b"\n"
    path.write_bytes(line + line[:50])
    assert len(read_switch_costs(path)) == 1
    path.write_bytes(line + line.replace(b'"at"', b'"on"') + line)
    with pytest.raises(ProfileError) as caught:
        read_switch_costs(path)
    assert str(caught.value.where).endswith("switch_costs.jsonl:2")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_switch_costs(tmp_path / "none")
