"""The best plan of a small problem, found by trying everything: configurations, sets of GPUs, workers.

Written from the words of the design alone. It shares no code with the planner, the solvers or the
verifier; it only reads problems. What cannot be told apart (GPUs of one node that no pin, exclusion
or running plan names) is counted instead of named, which loses nothing.

A set of GPUs and shares of nodes is one integer of fields with a guard bit each, so that "fits
beside" is one subtraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

from oracle_configurations import Configurations, Way, spreads

from libra_plan.models.topology import GpuId
from libra_plan.planner.problem import IncumbentTask, Problem, Task

GPU_BITS = 8
HOST_BITS = 40
SCALE = 12  # host needs are multiples of a twelfth in these problems


@dataclass(frozen=True)
class Kind:
    """GPUs of one node that nothing tells apart."""

    node: str
    gpu_class: str
    marks: frozenset[tuple[object, ...]]
    count: int


def best_throughput(problem: Problem) -> float:
    """Return the greatest sum of worths any plan of the problem has."""
    oracle = Oracle(problem, lambda entry: entry[1])
    found = oracle.search(0.0, lambda total, entry: total + entry[1], lambda total: total)
    return float(max(found.values()))


def best_levels(problem: Problem) -> tuple[tuple[float, ...], float]:
    """Return the leximin-best sorted throughputs (queued tasks 0), then the best sum of worths."""
    oracle = Oracle(problem, lambda entry: entry)

    def add(total: tuple[tuple[float, ...], float], entry: tuple[float, float]) -> Any:
        return tuple(sorted((*total[0], entry[0]))), total[1] + entry[1]

    def rank(total: tuple[tuple[float, ...], float]) -> Any:
        return tuple(round(level, 9) for level in total[0]), total[1]

    found = oracle.search(((), 0.0), add, rank)
    return max(found.values(), key=rank)


def reference(problem: Problem, task: Task) -> float | None:
    """Return the rate of the task alone on its weighted fair share, steps/s."""
    return Oracle(problem).reference(task)


class Oracle(Configurations):
    """All that can be known of one problem by looking at every case."""

    def __init__(self, problem: Problem, better: Callable[[tuple[float, float]], Any] = max) -> None:
        super().__init__(problem)
        self.better = better  # what to keep of two ways to be in one state

    # ------------------------------------------------------------ states

    @cached_property
    def kinds(self) -> list[Kind]:
        """Group the GPUs by node, class and everything that names them."""
        groups: dict[tuple[str, str, frozenset[tuple[object, ...]]], int] = {}
        for gpu in self.cluster.gpus.values():
            key = (gpu.id.node, gpu.gpu_class, frozenset(self._marks(gpu.id)))
            groups[key] = groups.get(key, 0) + 1
        return [Kind(*key, count) for key, count in groups.items()]

    def _marks(self, gpu: GpuId) -> Iterator[tuple[object, ...]]:
        for task in self.problem.tasks:
            for role in task.roles:
                if gpu in role.excluded_gpus:
                    yield ("out", task.id, role.id)
                if gpu in role.pinned_gpus:
                    yield ("pin", task.id, role.id)
        for held in self.problem.running:
            for held_role in held.roles:
                if any(gpu in replica for replica in held_role.replicas):
                    yield ("held", held.task, held_role.role)

    @cached_property
    def hosts_matter(self) -> bool:
        """Return whether any role takes anything of a node but GPUs."""
        return any(
            not role.on_gpu
            or role.cpu_cores_per_gpu
            or role.host_memory_mib_per_gpu
            or any(option.host_static_mib or option.offloaded_host_mib for option in role.options)
            for task in self.problem.tasks
            for role in task.roles
        )

    @cached_property
    def guards(self) -> int:
        """Set the guard bit of every field."""
        bits, at = 0, 0
        for width in [GPU_BITS] * len(self.kinds) + [HOST_BITS] * 2 * len(self.cluster.nodes):
            at += width
            bits |= 1 << (at - 1)
        return bits

    @cached_property
    def room(self) -> int:
        """Set every field to what there is, and its guard bit."""
        state = sum(kind.count << (GPU_BITS * at) for at, kind in enumerate(self.kinds))
        for node in self.cluster.nodes:
            state += self.host(node.id, node.cpu_cores or 0.0, node.host_memory_mib or 0.0)
        return state | self.guards

    def host(self, node: str, cores: float, memory_mib: float) -> int:
        """Write shares of a node as a state."""
        if not self.hosts_matter:
            return 0
        at = GPU_BITS * len(self.kinds) + 2 * HOST_BITS * [n.id for n in self.cluster.nodes].index(node)
        return (_whole(cores) << at) + (_whole(memory_mib) << (at + HOST_BITS))

    def fits(self, state: int) -> bool:
        """Return whether no field is over what there is."""
        return (self.room - state) & self.guards == self.guards

    def count(self, state: int, at: int) -> int:
        """Read how many GPUs of a kind a state takes."""
        return (state >> (GPU_BITS * at)) & ((1 << GPU_BITS) - 1)

    # ------------------------------------------------------------ the search

    def search(self, start: Any, add: Callable[..., Any], rank: Callable[..., Any]) -> dict[int, Any]:
        """Return the best total of every state all tasks together can be in."""
        best: dict[int, Any] = {0: start}
        for task in self.problem.tasks:
            grown: dict[int, Any] = {}
            entries = [(0, (0.0, 0.0)), *self.entries(task).items()]
            room, guards = self.room, self.guards
            for state, total in best.items():
                left = room - state
                for more, entry in entries:
                    if (left - more) & guards == guards:
                        sum_ = add(total, entry)
                        old = grown.get(state + more)
                        if old is None or rank(sum_) > rank(old):
                            grown[state + more] = sum_
            best = grown
        return best

    def entries(self, task: Task) -> dict[int, tuple[float, float]]:
        """Map every state the task can be in to its best (normalised throughput, worth)."""
        unit = self.reference(task)
        if unit is None:
            return {}
        held = next((held for held in self.problem.running if held.task == task.id), None)
        moved = 1.0 if held is None else max(0.01, 1.0 - task.restart_s / self.problem.horizon_s)
        found: dict[int, tuple[float, float]] = {}
        fastest: dict[object, Way] = {}
        for way in self.ways(task):
            key = self._footprint(task, way)
            if key not in fastest or way.seconds < fastest[key].seconds:
                fastest[key] = way
        for way in fastest.values():
            self._enter(found, task, self.states(task, way), 1.0 / way.seconds / unit, moved)
        if held is not None and self._known(held):
            for way in self.ways(task):
                if self._keeps(way, held):
                    self._enter(found, task, [self._held_state(way, held)], 1.0 / way.seconds / unit, 1.0)
        return self._unbeaten(found)

    def _unbeaten(self, found: dict[int, tuple[float, float]]) -> dict[int, tuple[float, float]]:
        """Drop states that take all another one takes and are no better; no plan needs them."""
        kept: dict[int, tuple[float, float]] = {}
        guards = self.guards
        for state in sorted(found, key=lambda state: (self.better(found[state]), -state), reverse=True):
            room = state | guards
            if not any((room - other) & guards == guards for other in kept):
                kept[state] = found[state]
        return kept

    def _enter(
        self,
        found: dict[int, tuple[float, float]],
        task: Task,
        states: Iterable[int],
        rate: float,
        kept: float,
    ) -> None:
        value = (round(rate, 12), self._urgency(task) * rate * kept)
        for state in states:
            for whole in self.with_workers(task, state):
                if whole not in found or self.better(found[whole]) < self.better(value):
                    found[whole] = value

    def _urgency(self, task: Task) -> float:
        """Return the weight; what waits counts once more for every `aging_s` it has waited."""
        if self.problem.aging_s is None or any(held.task == task.id for held in self.problem.running):
            return task.weight
        return task.weight + task.weight * task.waited_s / self.problem.aging_s

    def _known(self, held: IncumbentTask) -> bool:
        return all(gpu in self.cluster.gpus for gpu in _held_gpus(held))

    def _keeps(self, way: Way, held: IncumbentTask) -> bool:
        """Return whether the configuration can go on exactly where the task is now."""
        has = {role.role: role for role in held.roles}
        pairs = [pair for phase in way.phases for pool, _ in phase for pair in pool]
        if {role.id for role, _ in pairs} != set(has):
            return False
        for role, option in pairs:
            now = has[role.id]
            gpus = {gpu for replica in now.replicas for gpu in replica}
            if sorted(now.mix) != sorted(each.layout for each in option.mix):
                return False
            if (now.layout, len(now.replicas)) != (option.layout, option.replicas):
                return False
            if any(self.cluster.gpus[gpu].gpu_class != option.gpu_class for gpu in gpus):
                return False
            if gpus & role.excluded_gpus or (role.pinned_gpus and gpus != role.pinned_gpus):
                return False
            if not all(self.is_whole(replica) for replica in now.replicas):
                return False
        for phase in way.phases:
            unions = []
            for pool, _ in phase:
                union = {gpu for role, _ in pool for replica in has[role.id].replicas for gpu in replica}
                _, size, number = self.block(pool, way)
                if len(union) > size * number or any(union & role.excluded_gpus for role, _ in pool):
                    return False
                unions.append(union)
            if sum(map(len, unions)) != len(set().union(*unions)):
                return False
        return len(_held_gpus(held)) <= way.gpus

    def _held_state(self, way: Way, held: IncumbentTask) -> int:
        """Return exactly the GPUs that are held, with what each takes from its node."""
        marked = [
            at for at, kind in enumerate(self.kinds) if any(m[:2] == ("held", held.task) for m in kind.marks)
        ]
        state = sum(self.kinds[at].count << (GPU_BITS * at) for at in marked)
        if len(way.phases) > 1:
            return state + self._host_of(state, *self._host_over_phases(way))
        for pool, asleep in way.phases[0]:
            names = {role.id for role, _ in pool}
            here = [
                at
                for at in marked
                if any(m[:2] == ("held", held.task) and m[2] in names for m in self.kinds[at].marks)
            ]
            part = sum(self.kinds[at].count << (GPU_BITS * at) for at in here)
            state += self._host_of(part, *_host_per_gpu(pool, asleep))
        return state

    @staticmethod
    def _host_over_phases(way: Way) -> tuple[float, float]:
        needs = [[_host_per_gpu(pool, asleep) for pool, asleep in phase] for phase in way.phases]
        return (
            sum(max(need[0] for need in phase) for phase in needs),
            sum(max(need[1] for need in phase) for phase in needs),
        )

    def _footprint(self, task: Task, way: Way) -> object:
        """Tell apart the ways of a task whose sets of GPUs or shares of nodes may differ."""
        pinned = any(role.pinned_gpus for role in task.roles)
        pools = []
        for phase in way.phases:
            for pool, asleep in phase:
                barred = frozenset().union(*(role.excluded_gpus for role, _ in pool))
                who = (
                    tuple((role.id, option.layout, option.replicas) for role, option in pool)
                    if pinned
                    else ()
                )
                pools.append((self.block(pool, way), barred, who, _host_per_gpu(pool, asleep)))
        if len(way.phases) > 1:
            return tuple(self.blocks(way).items()), self._host_over_phases(way)
        return tuple(sorted(pools, key=repr))

    def with_workers(self, task: Task, state: int) -> Iterator[int]:
        """Spread the workers of the CPU-only roles over the nodes in every way."""
        envs = [role for role in task.roles if not role.on_gpu]
        nodes = [node.id for node in self.cluster.nodes]
        shared = [list(spreads(role.cpu_workers, len(nodes))) for role in envs]
        for choice in product(*shared):
            whole = state
            for role, spread in zip(envs, choice, strict=True):
                for node, workers in zip(nodes, spread, strict=True):
                    part = workers / role.cpu_workers
                    whole += self.host(node, role.cpu_cores * part, role.host_memory_mib * part)
            if self.fits(whole):
                yield whole

    # ------------------------------------------------------------ sets of GPUs

    def states(self, task: Task, way: Way) -> set[int]:
        """List the sets of GPUs the configuration can be on."""
        if len(way.phases) > 1:
            return self._states_of_phases(way)
        found = {0}
        for pool, asleep in way.phases[0]:
            here = self._states_of_pool(task, way, pool, asleep)
            found = {one + other for one in found for other in here if self.fits(one + other)}
        return found

    def _states_of_pool(self, task: Task, way: Way, pool: Any, asleep: bool) -> set[int]:
        gpu_class, size, number = self.block(pool, way)
        barred = {("out", task.id, role.id) for role, _ in pool}
        allowed = [at for at, kind in enumerate(self.kinds) if not kind.marks & barred]
        found = self._pack(self._blocks(gpu_class, size, allowed), number)
        for role, _ in pool:
            if role.pinned_gpus - set(self.cluster.gpus):
                return set()
            if role.pinned_gpus:
                pinned = [at for at, kind in enumerate(self.kinds) if ("pin", task.id, role.id) in kind.marks]
                found = {s for s in found if all(self.count(s, at) == self.kinds[at].count for at in pinned)}
        return {state + self._host_of(state, *_host_per_gpu(pool, asleep)) for state in found}

    def _blocks(self, gpu_class: str, size: int, allowed: list[int]) -> list[int]:
        """List the sets one block can be: GPUs of one node, or whole nodes when it is larger."""
        sizes = self.node_sizes[gpu_class]
        largest = max(sizes.values())
        if size > largest:
            full = [node for node in sizes if sizes[node] == largest]
            if size % largest:
                return []
            chosen = [
                self._all_of(nodes, gpu_class, allowed)
                for nodes in combinations(full, size // largest)
                if len({self.domain(node) for node in nodes}) == 1
            ]
            return [state for state in chosen if state is not None]
        found = []
        for node in sizes:
            here = [
                at for at in allowed if self.kinds[at].node == node and self.kinds[at].gpu_class == gpu_class
            ]
            found += list(self._draw(here, size))
        return found

    def _all_of(self, nodes: tuple[str, ...], gpu_class: str, allowed: list[int]) -> int | None:
        here = [at for at, k in enumerate(self.kinds) if k.node in nodes and k.gpu_class == gpu_class]
        if not set(here) <= set(allowed):
            return None
        return sum(self.kinds[at].count << (GPU_BITS * at) for at in here)

    def _draw(self, kinds: list[int], size: int) -> Iterator[int]:
        if not kinds:
            if size == 0:
                yield 0
            return
        for taken in range(min(size, self.kinds[kinds[0]].count) + 1):
            for rest in self._draw(kinds[1:], size - taken):
                yield rest + (taken << (GPU_BITS * kinds[0]))

    def _host_of(self, state: int, cores: float, memory_mib: float) -> int:
        if not self.hosts_matter:
            return 0
        return sum(
            self.host(kind.node, cores, memory_mib) * self.count(state, at)
            for at, kind in enumerate(self.kinds)
            if self.count(state, at)
        )

    def _states_of_phases(self, way: Way) -> set[int]:
        ((gpu_class, size), number), *_ = self.blocks(way).items()
        blocks = self._blocks(gpu_class, size, list(range(len(self.kinds))))
        host = self._host_over_phases(way)
        return {state + self._host_of(state, *host) for state in self._pack(blocks, number)}


def _host_per_gpu(pool: Any, asleep: bool) -> tuple[float, float]:
    cores, memory_mib = 0.0, 0.0
    for role, option in pool:
        cores += role.cpu_cores_per_gpu
        memory_mib += (
            role.host_memory_mib_per_gpu
            + option.offloaded_host_mib
            + (option.host_static_mib if asleep else 0.0)
        )
    return cores, memory_mib


def _whole(amount: float) -> int:
    scaled = amount * SCALE
    assert abs(scaled - round(scaled)) < 1e-6, f"the oracle counts in twelfths, not {amount}"
    return round(scaled)


def _held_gpus(held: IncumbentTask) -> set[GpuId]:
    return {gpu for role in held.roles for replica in role.replicas for gpu in replica}
