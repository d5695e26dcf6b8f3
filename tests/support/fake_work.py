"""A device made of numbers: time passes only when it works, memory is a count of tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from libra_plan.profiles.measure.plan import PlannedPoint
from libra_plan.profiles.measure.runner import DeviceMemory, OutOfDeviceMemory

HARDWARE = {"gpu_class": "fake", "memory_mib": 1000.0}
SHAPE = {
    "id": "tiny",
    "params": 900,
    "layers": 1,
    "hidden": 8,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 4,
    "ffn": 16,
    "vocab": 32,
}


@dataclass
class FakeClock:
    """Seconds that pass when told to."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeWork:
    """Takes `seconds(point)` a step; holds `capacity` tokens; breaks on the `broken` points."""

    clock: FakeClock
    seconds: Callable[[PlannedPoint], float] = lambda point: 0.5 + point.tokens * 1e-3
    capacity: int = 10**9
    passes: int = 1
    broken: Collection[PlannedPoint] = ()
    prepare_s: float = 0.0
    prepared: list[PlannedPoint] = field(default_factory=list)
    steps: int = 0
    holding: int = 0
    resets: int = 0

    def prepare(self, point: PlannedPoint) -> Callable[[], None]:
        assert self.holding == 0, "the last point was not let go"
        self.prepared.append(point)
        self.holding = point.tokens
        self.clock.now += self.prepare_s
        if point in self.broken:
            raise RuntimeError("device-side assert")
        if point.tokens > self.capacity:
            raise OutOfDeviceMemory("no room")

        def step() -> None:
            self.steps += 1
            self.clock.now += self.seconds(point)

        return step

    def synchronize(self) -> None:
        pass

    def memory(self) -> DeviceMemory:
        return DeviceMemory(self.holding / 100, self.holding / 90, self.holding / 80 + 5)

    def reset(self) -> None:
        self.holding = 0
        self.resets += 1


@dataclass
class FakeBackend:
    """Hands out fake work and counts what is asked of it."""

    clock: FakeClock
    hardware: Mapping[str, object] = field(default_factory=lambda: dict(HARDWARE))
    build_s: float = 0.0
    options: Mapping[str, object] = field(default_factory=dict)
    works: dict[str, FakeWork] = field(default_factory=dict)
    closed: int = 0
    exclusive: bool | None = True

    def setup(self, name: str) -> Mapping[str, object]:
        phase = "decode" if name.startswith("decode") else name
        software = {"framework": "fake", "version": "1", "precision": "bf16"}
        return {"phase": phase, "model": SHAPE, "hardware": self.hardware, "software": software}

    def work(self, name: str) -> FakeWork:
        self.clock.now += self.build_s
        self.works[name] = FakeWork(self.clock, **self.options)  # type: ignore[arg-type]
        return self.works[name]

    def close(self) -> None:
        self.closed += 1
