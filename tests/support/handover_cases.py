"""Hand-overs for tests: tiny training loops on GPUs that are files, and what must hold after them."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import plans
import psutil
from live import end, free_ports

import libra_plan
from libra_plan.planner.launchers.agents import AgentOptions
from libra_plan.planner.launchers.build import build_manifest
from libra_plan.planner.launchers.manifest import GpuEntry, Manifest
from libra_plan.planner.runtime import processes
from libra_plan.planner.runtime.apply import HandOverReport, apply
from libra_plan.planner.runtime.gpus import GpuReport, GpuUse
from libra_plan.planner.runtime.journal import read_journal
from libra_plan.planner.runtime.processes import START_MARK, live_starts
from libra_plan.planner.runtime.settings import HandOverSettings
from libra_plan.planner.runtime.state import RunState, state_of
from libra_plan.planner.runtime.worker import latest_complete
from libra_plan.profiles.schema import LifecycleSpec

TRAINER = Path(__file__).with_name("handover_trainer.py")
# In torchrun's place: what follows `--` is the script
OPTIONS = AgentOptions(
    program=(
        "/bin/sh",
        "-c",
        'while [ "$1" != -- ]; do shift; done; shift; exec "$0" "$@"',
        sys.executable,
    )
)
Placement = Mapping[str, Mapping[str, Sequence[int]]]
OLD: Placement = {"a": {"actor": [0, 1]}, "b": {"actor": [2]}}
NEW: Placement = {"a": {"actor": [0]}, "b": {"actor": [1, 2]}}


@dataclass(frozen=True)
class Case:
    """A folder for a run, with its GPUs and ports."""

    folder: Path
    ports: tuple[int, int]
    gpus: int = 6

    @property
    def run(self) -> Path:
        """Return the folder of journal and logs."""
        return self.folder / "run"

    def manifest(
        self,
        placement: Placement,
        parent: Manifest | None = None,
        *,
        words: Mapping[str, Sequence[str]] | None = None,
        grace_s: float = 20.0,
        reshardable: bool = True,
        checkpoints: bool = True,
    ) -> Manifest:
        """Place tasks: GPU indices by task and role; `words` are added to a task's command."""
        where = plans.cluster(self.gpus, address=False, ports=self.ports)
        running = [
            plans.running(
                task, *([plans.role(role, [[f"n0:{gpu}"] for gpu in gpus])] for role, gpus in roles.items())
            )
            for task, roles in placement.items()
        ]
        workload = plans.workload_of(running)
        specs = []
        for spec in workload.tasks:
            command = (str(TRAINER), str(self.folder), *(words or {}).get(spec.id, ()))
            lifecycle = LifecycleSpec(
                grace_s=grace_s,
                checkpoint_dir=str(self.folder / "checkpoints" / spec.id) if checkpoints else None,
                reshardable=reshardable,
            )
            roles = tuple(msgspec.structs.replace(role, command=command) for role in spec.roles)
            specs.append(msgspec.structs.replace(spec, roles=roles, lifecycle=lifecycle))
        return build_manifest(
            plans.problem_of(where, running),
            plans.plan_of(running),
            name="lab",
            parent=parent,
            workload=msgspec.structs.replace(workload, tasks=tuple(specs)),
        )

    def check_gpus(self, node: str, gpus: tuple[GpuEntry, ...]) -> tuple[GpuReport, ...]:
        """Say that a GPU is busy as long as a process holds its lock."""
        return tuple(self._report(node, gpu.index) for gpu in gpus)

    def _report(self, node: str, index: int) -> GpuReport:
        with (self.folder / f"gpu-{index}.lock").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return GpuReport(f"{node}:{index}", GpuUse.BUSY, "locked")
        return GpuReport(f"{node}:{index}", GpuUse.FREE)

    def settings(self, **more: object) -> HandOverSettings:
        """Return settings that wait for tiny programs as long as they need."""
        kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        sources = str(Path(libra_plan.__file__).resolve().parent.parent)
        chosen: dict[str, object] = {
            "check_gpus": self.check_gpus,
            "checkpoint_wait_s": 60.0,
            "memory_wait_s": 60.0,
            "start_window_s": 60.0,
            "ready_wait_s": 90.0,
            "options": OPTIONS,
            "environment": {**kept, "PYTHONPATH": sources},
            **more,
        }
        return HandOverSettings(**chosen)  # type: ignore[arg-type]

    def state(self) -> RunState:
        """Read what the journal says."""
        return state_of(read_journal(self.run))

    def events(self) -> list[dict[str, object]]:
        """Read what the training loops wrote."""
        path = self.folder / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def faults(self) -> list[str]:
        """List what must never be, when no supervisor is at work."""
        return [*self._lost(), *self._processes(), *self._doubled()]

    def _doubled(self) -> Iterator[str]:
        for event in self.events():
            if event["event"] == "double":
                yield f"GPU {event['gpu']} was given to {event['task']}/{event['role']} while it was in use"

    def _lost(self) -> Iterator[str]:
        saved: dict[object, int] = {}
        for event in self.events():
            task, step = event["task"], event.get("step")
            if event["event"] == "saved" and isinstance(step, int):
                saved[task] = max(step, saved.get(task, 0))
            elif event["event"] == "begin" and isinstance(step, int) and step < saved.get(task, 0):
                yield f"{task} began again at step {step}, but had saved {saved[task]}"
        for task, step in saved.items():
            newest = latest_complete(self.folder / "checkpoints" / str(task))
            if newest is None or newest.step < step:
                yield f"{task}: the checkpoint of step {step} is gone"

    def _processes(self) -> Iterator[str]:
        state = self.state()
        recorded = {one.start for one in state.processes}
        for process in processes.marked_processes(state.launch_id):
            try:
                start = int(process.environ()[START_MARK])
            except psutil.Error:
                continue  # it has ended since it was found
            if start not in recorded:
                yield f"pid {process.pid} of start {start} runs and is not on record"
        holders: dict[str, str] = {}
        for one in state.processes:
            for gpu in one.gpus:
                if holders.setdefault(gpu, one.task) != one.task:
                    yield f"{gpu} is on record for {holders[gpu]} and {one.task}"

    def runs(self, manifest: Manifest | None) -> list[str]:
        """List how what runs differs from a manifest; everything recorded must be alive."""
        state = self.state()
        live = live_starts(state.processes)
        have = sorted((one.task, one.role, one.generation, one.gpus) for one in state.processes)
        want = sorted(
            (
                task.id,
                role.id,
                task.generation,
                tuple(f"{member.node}:{gpu}" for member in role.members for gpu in member.gpus),
            )
            for task in (() if manifest is None else manifest.spec.tasks)
            for role in task.roles
        )
        dead = [f"{one.task}/{one.role} is dead" for one in state.processes if one.start not in live]
        return dead if have == want else [*dead, f"{have} instead of {want}"]

    def kill_all(self) -> None:
        """End what a test left running, by the mark of its run."""
        state = self.state()
        end(*(processes.marked_processes(state.launch_id) if state.launch_id else ()))


@contextmanager
def case(folder: Path) -> Iterator[Case]:
    """Make a case, and leave nothing running."""
    made = Case(folder, free_ports())
    try:
        yield made
    finally:
        made.kill_all()


def begin(lab: Case, placement: Placement, **more: bool) -> Manifest:
    """Start a first plan."""
    manifest = lab.manifest(placement, **more)
    report = apply(manifest, folder=lab.run, dry_run=False, first=True, settings=lab.settings())
    assert report.outcome == "new", report.reason
    return manifest


def move(lab: Case, manifest: Manifest, **more: object) -> HandOverReport:
    """Hand over to another plan."""
    return apply(manifest, folder=lab.run, dry_run=False, settings=lab.settings(**more))


def kinds(lab: Case) -> list[type]:
    """List the kinds of the journal's records."""
    return [type(entry.record) for entry in read_journal(lab.run)]
