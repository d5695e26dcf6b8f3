"""Check a placed plan of an allocation case against the case file alone: shares no planner code."""

from __future__ import annotations

from collections import defaultdict
from typing import Any


def check_allocation(case: dict[str, Any], plan: dict[str, Any]) -> float:
    """Raise AssertionError at the first broken rule; give Σ weight · rate of a sound plan."""
    nodes = {str(node["id"]): node for node in case["cluster"]}
    tasks = {task["id"]: task for task in case["work"]}
    whole: dict[tuple[str, int], int] = defaultdict(int)
    quarters: dict[tuple[str, int], float] = defaultdict(float)
    memory: dict[tuple[str, int], float] = defaultdict(float)
    counts: dict[int, dict[int, dict[str, dict[int, int]]]] = {}
    for replica in plan["replicas"]:
        task = tasks[replica["task"]]
        roles = [task["roles"], [task.get("colocated")]][replica["form"]]
        role = next(each for each in roles if each and each["name"] == replica["role"])
        config = role["configs"][replica["config"]]
        gpus = [(node, index) for node, index in replica["gpus"]]
        size = config["gpus_per_replica"]
        assert len(set(gpus)) == max(size, 1) == len(gpus), "a replica has the GPUs its config says"
        for node, index in gpus:
            assert nodes[node]["gpu_type"] == config["gpu_type"], "of the config's type"
            assert index in nodes[node]["usable_gpus"], "and usable"
        on_nodes = {node for node, _ in gpus}
        if size <= 8:
            assert len(on_nodes) == 1, "up to 8 GPUs stay in one node"
        else:
            assert len(on_nodes) * 8 == size, "larger replicas take whole nodes"
        for gpu in gpus:
            if size:
                whole[gpu] += 1
            else:
                quarters[gpu] += config["compute_quarters"]
                memory[gpu] += config["memory_gb_per_gpu"]
                assert memory[gpu] <= case["capacity_gb"][config["gpu_type"]] * (1 + 1e-9), (
                    "memory of a shared GPU"
                )
        own = counts.setdefault(task["id"], {}).setdefault(replica["form"], {}).setdefault(role["name"], {})
        own[replica["config"]] = own.get(replica["config"], 0) + 1
    assert all(number == 1 for number in whole.values()), "a GPU has one whole replica at most"
    assert not set(whole) & set(quarters), "a whole replica shares with nobody"
    assert all(number <= 4 for number in quarters.values()), "a GPU has four quarters"
    return sum(_task_value(tasks[number], forms) for number, forms in counts.items())


def _task_value(task: dict[str, Any], forms: dict[int, dict[str, dict[int, int]]]) -> float:
    assert len(forms) == 1, "a task runs in one form"
    form, by_role = next(iter(forms.items()))
    rates = []
    for role in [task["roles"], [task.get("colocated")]][form]:
        numbers = by_role.get(role["name"], {})
        assert sum(n * role["configs"][c]["gpus_per_replica"] for c, n in numbers.items()) <= role["max_gpus"]
        assert all(n <= role["configs"][c]["max_replicas"] for c, n in numbers.items())
        if role["kind"] == "table":
            assert len(numbers) <= 1, "a table role runs one config"
            rates.append(sum(role["configs"][c]["rate_table"][n] for c, n in numbers.items()))
        else:
            rates.append(sum(n * role["configs"][c]["rate_per_replica"] for c, n in numbers.items()))
    return float(task["weight"]) * min(rates)


def moved_gpus(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Count GPUs that a task's role has in the second plan and not in the first."""

    def by_role(plan: dict[str, Any]) -> dict[tuple[int, str], set[tuple[str, int]]]:
        found: dict[tuple[int, str], set[tuple[str, int]]] = defaultdict(set)
        for each in plan["replicas"]:
            found[each["task"], each["role"]] |= {(node, index) for node, index in each["gpus"]}
        return found

    old = by_role(before)
    return sum(len(gpus - old.get(key, set())) for key, gpus in by_role(after).items())
