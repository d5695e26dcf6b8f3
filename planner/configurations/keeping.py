"""Configurations kept on disk between solves, one file a task: only tasks that have changed are weighed anew.

The key is the SHA-256 of everything a task's configurations depend on: its roles with every priced option,
coupling, arrangements and limits; what the cluster has of each GPU class, as far as the task could use it;
and the code that makes configurations. A node that fails therefore changes nothing for a task that could not use
so much anyway.

A file holds which options make up each configuration, never what they cost: pools are made again from the task's
own options, and what does not fit them any more is no configuration. Plans are verified as ever.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from libra_plan.models.fits import cache_folder
from libra_plan.notes import Notes
from libra_plan.planner.configurations.capacity import ClassCapacity
from libra_plan.planner.configurations.generate import ConfigurationDraft, ConfigurationTable
from libra_plan.planner.configurations.joint import JointTask
from libra_plan.planner.configurations.pools import PoolOption, pools_made
from libra_plan.planner.plan import MemoryMode
from libra_plan.planner.problem import Task

__all__ = [
    "ConfigurationFolder",
    "code_files",
    "configuration_key",
    "dump_configurations",
    "kept_configurations",
    "load_configurations",
]

_FORMAT = b"1"
_CODE = (
    "planner/configurations", "planner/plan.py", "planner/problem.py",
    "models/quantities.py", "models/rollout/streaming.py", "models/topology.py",
)  # fmt: skip
_MIB = 2**20


class _Pool(msgspec.Struct, frozen=True, array_like=True):
    """A pool: its roles by number, the option of each, and its blocks."""

    roles: tuple[int, ...]
    options: tuple[int, ...]
    gpu_class: str
    block_gpus: int
    blocks: int
    mode: MemoryMode
    between_phases: bool


class _Configuration(msgspec.Struct, frozen=True, array_like=True):
    """A configuration: phases of pools by number, blocks, and what configurations are compared by."""

    phases: tuple[tuple[int, ...], ...]
    blocks: tuple[tuple[str, int, int], ...]
    seconds: float
    cores: float
    host_mib: float
    even: bool


class _Configurations(msgspec.Struct, frozen=True):
    pools: tuple[_Pool, ...]
    configurations: tuple[_Configuration, ...]
    dropped: int
    exact: bool


class ConfigurationFolder:
    """Configurations in a folder of at most so many MiB; those unused for longest go first.

    What cannot be read or written is no error: `notes` says what was damaged, and configurations are made anew.
    """

    def __init__(self, folder: Path, most_mib: float) -> None:
        self.folder, self.most_mib = folder, most_mib
        self.found = self.made = 0
        self.notes: list[str] = []

    def find(self, key: str, task: Task, rooms: Mapping[str, ClassCapacity]) -> ConfigurationTable | None:
        """Read the configurations kept under a key; None when there are none, or none that can be used."""
        entry = self._entry(key)
        try:
            table = load_configurations(entry.read_bytes(), key, task, rooms)
        except OSError:
            return None
        except (ValueError, LookupError, TypeError) as fault:  # msgspec's errors are ValueErrors
            self.notes.append(f"configurations kept in {entry} cannot be used and are made anew: {fault}")
            return None
        self.found += 1
        with contextlib.suppress(OSError):
            os.utime(entry)
        return table

    def keep(self, key: str, table: ConfigurationTable) -> None:
        """Write configurations under a key, whole or not at all."""
        self.made += 1
        entry = self._entry(key)
        with contextlib.suppress(OSError):
            entry.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=entry.parent, prefix=".configurations-")
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(dump_configurations(key, table))
                Path(temporary).replace(entry)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise

    def trim(self) -> None:
        """Delete what has not been used for longest until the folder is no larger than it may be."""
        left = self.most_mib * _MIB
        for _, size, path in sorted(self._files(), reverse=True):
            left -= size
            if left < 0:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _files(self) -> list[tuple[float, int, Path]]:
        found = []
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                with contextlib.suppress(OSError):
                    state = path.stat()
                    found.append((state.st_mtime, state.st_size, path))
        return found

    def _entry(self, key: str) -> Path:
        return self.folder / f"{key}.json"


@contextlib.contextmanager
def kept_configurations(most_mib: float, notes: Notes) -> Iterator[ConfigurationFolder | None]:
    """Open what is kept beside the fits; afterwards report what was damaged, and delete what is too much."""
    if not most_mib:
        yield None
        return
    folder = ConfigurationFolder(cache_folder(os.environ) / "columns", most_mib)
    yield folder
    for note in folder.notes:
        notes(note)
    if folder.made:
        folder.trim()


def configuration_key(task: Task, rooms: Mapping[str, ClassCapacity], *, hosts_bind: bool) -> str | None:
    """Give the SHA-256 of what a task's configurations depend on; None for tasks whose configurations are not kept.

    Those are joint tasks, and tasks for which it matters which nodes have which GPUs.
    """
    roles = task.gpu_roles
    if isinstance(task, JointTask) or any(role.pinned_gpus or role.excluded_gpus for role in roles):
        return None
    replicas = sum(max((option.replicas for option in role.options), default=0) for role in roles)
    sizes = sorted({gpus for role in roles for option in role.options for gpus, _ in option.sizes})
    most = replicas * max(sizes, default=0)  # pools hold a replica in every block at least
    named = {option.gpu_class for role in roles for option in role.options}
    has = [
        (name, each.memory_mib, each.full_node_gpus, min(each.gpus, most),
         [min(each.rooms(size), replicas) for size in sizes])
        for name, each in rooms.items()
        if name in named
    ]  # fmt: skip
    total = min(sum(each.gpus for each in rooms.values()), most)
    digest = hashlib.sha256(_code_digest())
    digest.update(msgspec.json.encode([task, has, total, hosts_bind], order="deterministic"))
    return digest.hexdigest()


@functools.cache
def _code_digest() -> bytes:
    digest = hashlib.sha256(_FORMAT)
    for file in code_files():
        digest.update(file.read_bytes())
    return digest.digest()


def code_files() -> list[Path]:
    """List the files of the code that configurations come from: another text of any makes other keys."""
    package = Path(__file__).parent.parent.parent
    return [
        file
        for path in (package / name for name in _CODE)
        for file in ([path] if path.is_file() else sorted(path.glob("*.py")))
    ]


def dump_configurations(key: str, table: ConfigurationTable) -> bytes:
    """Write configurations as JSON with the SHA-256 of key and text in front: damage shows, and whose they are."""
    roles = {role.id: number for number, role in enumerate(table.task.gpu_roles)}
    options = {
        (role.id, id(option)): number
        for role in table.task.gpu_roles
        for number, option in enumerate(role.options)
    }
    numbers: dict[tuple[int, bool], int] = {}
    pools: list[_Pool] = []

    def number(option: PoolOption, between_phases: bool) -> int:
        key = (id(option), between_phases)
        if key not in numbers:
            numbers[key] = len(pools)
            pool = option.pool
            pools.append(
                _Pool(
                    tuple(roles[choice.role] for choice in pool.choices),
                    tuple(options[choice.role, id(choice.option)] for choice in pool.choices),
                    pool.gpu_class,
                    pool.block_gpus,
                    pool.blocks,
                    pool.memory_mode,
                    between_phases,
                )
            )
        return numbers[key]

    configurations = tuple(
        _Configuration(
            tuple(tuple(number(each, len(draft.phases) > 1) for each in phase) for phase in draft.phases),
            draft.blocks,
            draft.seconds,
            draft.cores,
            draft.host_mib,
            draft.even,
        )
        for draft in table.drafts
    )
    body = msgspec.json.encode(_Configurations(tuple(pools), configurations, table.dropped, table.exact))
    return hashlib.sha256(key.encode() + body).hexdigest().encode() + b"\n" + body


def load_configurations(
    data: bytes, key: str, task: Task, rooms: Mapping[str, ClassCapacity]
) -> ConfigurationTable:
    """Read the configurations of a task; ValueError or LookupError when they are damaged or not this task's."""
    digest, _, body = data.partition(b"\n")
    if hashlib.sha256(key.encode() + body).hexdigest().encode() != digest:
        raise ValueError("they are damaged")
    kept = msgspec.json.decode(body, type=_Configurations)
    pools = [_made(each, task, rooms) for each in kept.pools]
    drafts = tuple(
        ConfigurationDraft(
            tuple(tuple(pools[number] for number in phase) for phase in each.phases),
            each.blocks,
            each.seconds,
            each.cores,
            each.host_mib,
            each.even,
        )
        for each in kept.configurations
    )
    return ConfigurationTable(task, drafts, kept.dropped, kept.exact)


def _made(kept: _Pool, task: Task, rooms: Mapping[str, ClassCapacity]) -> PoolOption:
    """Make a pool again from the task's own options."""
    roles = [task.gpu_roles[number] for number in kept.roles]
    options = [role.options[number] for role, number in zip(roles, kept.options, strict=True)]
    mode = kept.mode if kept.between_phases else None
    found = pools_made(roles, options, kept.block_gpus, kept.blocks, rooms[kept.gpu_class], mode)
    for each in found:
        if each.pool.memory_mode is kept.mode:
            return each
    raise ValueError("a pool does not fit its GPUs")
