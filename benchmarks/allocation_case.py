"""Read allocation instances into the optimizer's resources and tasks, and write choices as plans."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from libra_plan.planner.optimize.colgen.fronts import MixRole, TableRole
from libra_plan.planner.optimize.colgen.held import IncumbentRole
from libra_plan.planner.optimize.colgen.minrate import Form, MinRateTask
from libra_plan.planner.optimize.colgen.oracle import Found
from libra_plan.planner.optimize.colgen.placing import Block, NodeRoom, Share, place_blocks, place_shares
from libra_plan.planner.optimize.colgen.resources import Resources
from libra_plan.planner.optimize.colgen.search import Chosen

SIZES = (1, 2, 4, 8, 16)
Gpu = tuple[str, int]
Running = Mapping[tuple[int, str], Sequence[Gpu]]
"""(task id, role name) -> GPUs it holds; a share counts as its GPU."""

Where = tuple[int, int, str, int]
"""Task id, form, role and config of a replica."""


def read_case(path: Path) -> dict[str, Any]:
    """Read a case file, gzipped or not."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    case: dict[str, Any] = json.loads(data)
    return case


@dataclass
class Allocation:
    """A case and the running plan; `shares_held` lists task, role, GPU and config of its shares."""

    case: dict[str, Any]
    running: Running = field(default_factory=dict)
    shares_held: Sequence[tuple[int, str, Gpu, int]] = ()
    kept: Sequence[tuple[int, Found]] = ()

    @cached_property
    def types(self) -> list[str]:
        return sorted(self.case["capacity_gb"])

    @cached_property
    def at(self) -> dict[tuple[str, str], int]:
        """Number the rows: GPUs in blocks of each size that binds, and what an opened GPU gives."""
        return {name: i for i, name in enumerate(self._limits)}

    @cached_property
    def _limits(self) -> dict[tuple[str, str], float]:
        limits: dict[tuple[str, str], float] = {}
        for name in self.types:
            sizes = [len(n["usable_gpus"]) for n in self.case["cluster"] if n["gpu_type"] == name]
            last = np.inf
            for k in SIZES:
                rooms = sum(n // k for n in sizes) if k <= 8 else sum(n == 8 for n in sizes) // 2
                if k * rooms < last:  # a row no tighter than that of smaller blocks follows from it
                    last = limits[name, str(k)] = k * rooms
            limits |= {(name, what): 0.0 for what in ("quarters", "memory", "thirds", "fourths")}
        return limits

    @cached_property
    def _parts(self) -> dict[tuple[int, str], list[tuple[Gpu, int]]]:
        """List the shares held by task and role: the GPU and the config."""
        parts: dict[tuple[int, str], list[tuple[Gpu, int]]] = {}
        for task, name, gpu, config in self.shares_held:
            parts.setdefault((task, name), []).append((gpu, config))
        return parts

    @cached_property
    def _loss(self) -> dict[tuple[int, str], float]:
        """What a moved GPU costs, by task and role."""
        return {
            (task["id"], role["name"]): role["switch_loss_per_gpu"]
            for task in self.case["work"]
            for roles in _forms(task)
            for role in roles
        }

    @cached_property
    def _type_of(self) -> dict[str, str]:
        return {str(n["id"]): n["gpu_type"] for n in self.case["cluster"]}

    @cached_property
    def _usable(self) -> frozenset[Gpu]:
        return frozenset((str(n["id"]), g) for n in self.case["cluster"] for g in n["usable_gpus"])

    @cached_property
    def resources(self) -> Resources:
        units = np.zeros((len(self.types), len(self.at)))
        for u, name in enumerate(self.types):
            gives = {"quarters": 4.0, "memory": self.case["capacity_gb"][name], "thirds": 2.0, "fourths": 3.0}
            units[u, self.at[name, "1"]] = 1.0
            for what, amount in gives.items():
                units[u, self.at[name, what]] = -amount
        limit = np.array(list(self._limits.values()), dtype=np.float64)
        return Resources(tuple(f"{name}:{what}" for name, what in self.at), limit, units)

    @cached_property
    def oracles(self) -> list[MinRateTask]:
        return [self._task(task) for task in self.case["work"]]

    def _task(self, task: dict[str, Any]) -> MinRateTask:
        forms = [tuple(self._role(task, role) for role in roles) for roles in _forms(task)]
        return MinRateTask(
            float(task["weight"]),
            tuple(
                Form(
                    tuple(r for r in roles if isinstance(r, TableRole)),
                    tuple(r for r in roles if isinstance(r, MixRole)),
                )
                for roles in forms
            ),
        )

    def demand_of(self, config: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
        demand = np.zeros(len(self.at))
        name, k, memory = config["gpu_type"], config["gpus_per_replica"], config["memory_gb_per_gpu"]
        for size in SIZES:
            if size <= k and (name, str(size)) in self.at:
                demand[self.at[name, str(size)]] = k
        if k == 0:
            room = self.case["capacity_gb"][name]
            # At most two items above a third, three above a fourth of the memory share a GPU.
            for what, amount in (
                ("quarters", config["compute_quarters"]),
                ("memory", memory),
                ("thirds", float(memory > room / 3)),
                ("fourths", float(memory > room / 4)),
            ):
                demand[self.at[name, what]] = amount
        return demand

    def _held(self, task: dict[str, Any], role: dict[str, Any]) -> IncumbentRole | None:
        """Describe what a role holds; None when the task is not running: starting it costs nothing."""
        if not any((task["id"], name) in self.running for name in _names(task)):
            return None
        type_of, usable = self._type_of, self._usable
        on_node: dict[str, dict[str, int]] = {}
        for gpu in set(self.running.get((task["id"], role["name"]), ())):
            if gpu in usable:
                own = on_node.setdefault(type_of[gpu[0]], {})
                own[gpu[0]] = own.get(gpu[0], 0) + 1
        configs = role["configs"]
        return IncumbentRole(
            tuple(c["gpu_type"] for c in configs),
            tuple(c["gpus_per_replica"] for c in configs),
            tuple(float(c["compute_quarters"]) for c in configs),
            on_node,
            role["switch_loss_per_gpu"],
        )

    def _role(self, task: dict[str, Any], role: dict[str, Any]) -> TableRole | MixRole:
        configs = role["configs"]
        demand = np.array([self.demand_of(config) for config in configs])
        held = self._held(task, role)
        numbers = [_most(config, role["max_gpus"]) for config in configs]
        extras = [held.extras(c, n) if held else [0.0] * n for c, n in enumerate(numbers)]
        ids = tuple(range(len(configs)))
        if role["kind"] == "table":
            points = [(c, n) for c in ids for n in range(1, numbers[c] + 1)]
            return TableRole(
                demand,
                ids,
                np.array([c for c, _ in points], dtype=np.int64),
                np.array([n for _, n in points], dtype=np.int64),
                np.array([configs[c]["rate_table"][n] for c, n in points]),
                np.array([sum(extras[c][:n]) for c, n in points]),
            )
        items = [(c, extra, extras[c].count(extra)) for c in ids for extra in sorted(set(extras[c]))]
        return MixRole(
            demand,
            ids,
            np.array([c for c, _, _ in items], dtype=np.int64),
            np.array([configs[c]["rate_per_replica"] for c, _, _ in items]),
            np.array([n for _, _, n in items], dtype=np.int64),
            np.array([configs[c]["gpus_per_replica"] for c, _, _ in items], dtype=np.int64),
            np.array([extra for _, extra, _ in items]),
            role["max_gpus"],
            held,
        )

    def lacking(self, chosen: Sequence[Chosen]) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        """Check that the shares pack into the GPUs there are; else say how many quarters to add."""
        demand = np.sum([each.demand for each in chosen], axis=0)
        shares = [share for share, _ in self._requests(chosen)[1]]
        more = np.zeros(len(self.at))
        for name in self.types:
            own = [share for share in shares if share.gpu_class == name]
            whole, quarters = self.at[name, "1"], self.at[name, "quarters"]
            most = {name: int(self.resources.limit[whole] - demand[whole] + 1e-9)}
            opened = len(place_shares(own, self.case["capacity_gb"], most=most))
            if demand[whole] + opened > self.resources.limit[whole] + 1e-9:
                more[quarters] = max(1.0, 4 * (opened - 1) + 1 - demand[quarters])
        return more if more.any() else None

    def _requests(
        self, chosen: Sequence[Chosen]
    ) -> tuple[list[tuple[Block, Where]], list[tuple[Share, Where]]]:
        """List the blocks and shares of a choice, and where each belongs."""
        blocks: list[tuple[Block, Where]] = []
        shares: list[tuple[Share, Where]] = []
        for each in chosen:
            task = self.case["work"][each.task]
            number, roles = each.handle  # type: ignore[misc]
            for role, picks in zip(_in_handle_order(_forms(task)[number]), roles, strict=True):
                for c, replicas in picks:
                    config, owner = role["configs"][c], f"{task['id']}/{role['name']}"
                    where = (task["id"], number, role["name"], c)
                    name, size = config["gpu_type"], config["gpus_per_replica"]
                    if size:
                        blocks += [(Block(owner, name, size, role["switch_loss_per_gpu"]), where)] * replicas
                    else:
                        quarters, memory = config["compute_quarters"], config["memory_gb_per_gpu"]
                        share = Share(owner, name, quarters, memory, c, role["switch_loss_per_gpu"])
                        shares += [(share, where)] * replicas
        return blocks, shares

    def place(self, chosen: Sequence[Chosen]) -> dict[str, Any] | None:
        """Put a choice on GPUs; None when it does not fit. A plan lists replicas by task and role."""
        requests, shares = self._requests(chosen)
        held, held_shares = self._held_gpus()
        demand = np.sum([each.demand for each in chosen], axis=0)
        room = {
            name: int(self.resources.limit[self.at[name, "1"]] - demand[self.at[name, "1"]])
            for name in self.types
        }
        opened = place_shares([share for share, _ in shares], self.case["capacity_gb"], held_shares, room)
        blocks = [block for block, _ in requests]
        for i, (name, gpu, on) in enumerate(opened):
            loss = sum(self._loss[shares[j][1][0], shares[j][1][2]] for j in on)
            blocks.append(Block(f"opened:{i}", name, 1, loss))
            if gpu is not None:
                held[f"opened:{i}"] = [gpu]
        nodes = [NodeRoom(str(n["id"]), n["gpu_type"], tuple(n["usable_gpus"])) for n in self.case["cluster"]]
        places = place_blocks(nodes, blocks, held)
        if places is None:
            return None
        replicas = [
            (*where, gpus) for (_, where), gpus in zip(requests, places[: len(requests)], strict=True)
        ]
        for (_, _, numbers), gpus in zip(opened, places[len(requests) :], strict=True):
            replicas += [(*shares[i][1], gpus) for i in numbers]
        return self._plan(replicas)

    def _held_gpus(self) -> tuple[dict[str, list[Gpu]], dict[str, list[tuple[Gpu, int]]]]:
        """List by owner the usable GPUs held whole, and the shares held."""
        held: dict[str, list[Gpu]] = {}
        shares: dict[str, list[tuple[Gpu, int]]] = {}
        for (task_id, name), gpus in self.running.items():
            parts = self._parts.get((task_id, name), [])
            in_part = {gpu for gpu, _ in parts}
            owner = f"{task_id}/{name}"
            held[owner] = [gpu for gpu in gpus if gpu in self._usable and gpu not in in_part]
            shares[owner] = [(gpu, c) for gpu, c in parts if gpu in self._usable]
        return held, shares

    def keeping(self) -> list[tuple[int, Found]]:
        """Give the columns of running tasks whose GPUs are all there still: they move nothing."""
        usable = self._usable
        broken = {task for (task, _), gpus in self.running.items() if not set(gpus) <= usable}
        return [(t, found) for t, found in self.kept if self.case["work"][t]["id"] not in broken]

    def _plan(self, replicas: Sequence[tuple[int, int, str, int, Sequence[Gpu]]]) -> dict[str, Any]:
        plan = [
            {"task": t, "form": f, "role": name, "config": c, "gpus": [list(g) for g in gpus]}
            for t, f, name, c, gpus in replicas
        ]
        running_tasks = {task for task, _ in self.running}
        new = 0
        cost = 0.0
        now: dict[tuple[int, str], set[Gpu]] = {}
        for t, _, name, _, gpus in replicas:
            now.setdefault((t, name), set()).update(tuple(g) for g in gpus)
        for key, gpus in now.items():
            if key[0] in running_tasks:
                moved = len(gpus - set(self.running.get(key, ())))
                new += moved
                cost += moved * self._loss[key]
        return {"replicas": plan, "moved_gpus": new, "move_cost": cost}

    def worth(self, chosen: Sequence[Chosen]) -> float:
        """Place a choice and say what it is worth with all its moves; nothing if it does not fit."""
        plan = self.place(chosen)
        return -np.inf if plan is None else self.value(plan)

    def value(self, plan: dict[str, Any]) -> float:
        """Give what a placed plan is worth: weight times rate over tasks, less its moves."""
        rates: dict[tuple[int, int], dict[str, dict[int, int]]] = {}
        for each in plan["replicas"]:
            role = rates.setdefault((each["task"], each["form"]), {}).setdefault(each["role"], {})
            role[each["config"]] = role.get(each["config"], 0) + 1
        tasks = {task["id"]: task for task in self.case["work"]}
        total = 0.0
        for (number, form), roles in rates.items():
            own = [_rate(role, roles.get(role["name"], {})) for role in _forms(tasks[number])[form]]
            total += tasks[number]["weight"] * min(own)
        return total - float(plan["move_cost"])


def after(case: dict[str, Any], plan: dict[str, Any], chosen: Sequence[Chosen]) -> Allocation:
    """Take a placed choice as the running plan of a case, which may have changed since."""
    configs = {
        (t["id"], r["name"], c): config
        for t in case["work"]
        for roles in _forms(t)
        for r in roles
        for c, config in enumerate(r["configs"])
    }
    running: dict[tuple[int, str], list[Gpu]] = {}
    shares = []
    for each in plan["replicas"]:
        own = running.setdefault((each["task"], each["role"]), [])
        for node, index in each["gpus"]:
            own.append((node, index))
            if configs[each["task"], each["role"], each["config"]]["gpus_per_replica"] == 0:
                shares.append((each["task"], each["role"], (node, index), each["config"]))
    allocation = Allocation(case, running, shares)
    for each in chosen:
        # What kept columns are worth: no moves are in it, whatever they cost when they were chosen.
        number, roles = each.handle  # type: ignore[misc]
        task = case["work"][each.task]
        rates = [
            _rate(role, dict(picks))
            for role, picks in zip(_in_handle_order(_forms(task)[number]), roles, strict=True)
        ]
        demand = sum(
            (
                n * allocation.demand_of(role["configs"][c])
                for role, picks in zip(_in_handle_order(_forms(task)[number]), roles, strict=True)
                for c, n in picks
            ),
            np.zeros(len(allocation.at)),
        )
        found = Found(task["weight"] * min(rates), demand, each.handle, 0.0)
        allocation.kept = [*allocation.kept, (each.task, found)]
    return allocation


def _rate(role: dict[str, Any], numbers: dict[int, int]) -> float:
    if role["kind"] == "table":
        return max((role["configs"][c]["rate_table"][n] for c, n in numbers.items()), default=0.0)
    return sum(n * role["configs"][c]["rate_per_replica"] for c, n in numbers.items())


def _forms(task: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return [task["roles"], [task["colocated"]]] if task.get("colocated") else [task["roles"]]


def _names(task: dict[str, Any]) -> list[str]:
    return [role["name"] for roles in _forms(task) for role in roles]


def _in_handle_order(roles: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give the roles as a column's handle lists them: tables first."""
    return [r for r in roles if r["kind"] == "table"] + [r for r in roles if r["kind"] != "table"]


def _most(config: dict[str, Any], max_gpus: int) -> int:
    k = config["gpus_per_replica"]
    return int(min(config["max_replicas"], max_gpus // k)) if k else int(config["max_replicas"])
