"""Emit manifests for frameworks, and read what their drivers add to the user's command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from launch_cases import TEN

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.base import configured, find_emitter
from libra_plan.planner.launchers.manifest import Manifest, TaskEntry

RECORDED = Path(__file__).parents[1] / "data" / "launchers"
FRAMEWORKS = ("verl", "slime", "openrlhf", "rlinf", "roll", "areal", "nemo-rl", "skyrl", "prime-rl")


def emit(name: str, manifest: Manifest, **options: str) -> dict[str, str]:
    """Emit a manifest with options."""
    return configured(find_emitter(name), options).emit(manifest)


def recorded(name: str) -> set[str]:
    """Return the keys or flags that were recorded from a framework."""
    return {line.split()[0] for line in (RECORDED / f"{name}.txt").read_text().splitlines()}


def arguments(files: dict[str, str], task: str, name: str) -> list[str]:
    """Return the words that a driver adds to the user's command."""
    text = files[f"{task}/{name}.sh"].replace(" \\\n", " ").splitlines()[-1]
    words = shlex.split(text)
    return words[words.index("$@") + 1 :]


def values(files: dict[str, str], task: str, name: str) -> dict[str, str]:
    """Return those words as keys and values."""
    return dict(word.lstrip("-").partition("=")[::2] for word in arguments(files, task, name))


def emitted(name: str, **options: str) -> Iterator[tuple[dict[str, str], TaskEntry]]:
    """Emit all of the ten manifests that the framework can express."""
    for make in TEN.values():
        manifest = make()
        try:
            files = emit(name, manifest, **options)
        except ManifestError:
            continue  # what is refused is in the golden table
        for task in manifest.spec.tasks:
            yield files, task
