"""What is emitted for prime-rl."""

from __future__ import annotations

import launch_cases
import pytest
from framework_cases import emit, emitted, recorded


def test_prime_rl_tables_hold_known_keys_and_both_orders():
    """Inference takes the first GPUs that are visible, the trainer the next."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML reader")
    known = recorded("prime_rl_keys")
    for files, task in emitted("prime-rl"):
        tables = tomllib.loads(files[f"{task.id}/placement.toml"])
        assert set(leaves(tables)) <= known
    script = emit("prime-rl", launch_cases.gaps())["first/prime-rl.sh"]
    assert "export CUDA_VISIBLE_DEVICES=0,2,5,7\n" in script  # rollout on 0 and 2, actor on 5 and 7
    wide = tomllib.loads(emit("prime-rl", launch_cases.whole_nodes())["wide/placement.toml"])
    assert wide["slurm"]["nodelist"] == "n2,n0,n1"
    assert wide["deployment"]["num_train_nodes"] == 2


def leaves(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key
