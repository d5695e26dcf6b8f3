"""Golden files of the emitters, and how they are made again: `python tests/support/golden.py`.

For each emitter and golden case, `tests/golden/EMITTER/CASE/` holds what is emitted, or
`refused.txt` with a reason a line; `tests/golden/launchers.md` says of ten manifests and every
emitter what is emitted and what is refused. Torchrun's own golden files are in test_torchrun.py.
`tests/golden/joint/` holds manifests of tasks that run jointly.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
from joint_cases import CASES as JOINT
from joint_cases import manifest_of
from launch_cases import TEN

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.base import Emitter, configured, emitters
from libra_plan.planner.launchers.manifest import Manifest

FOLDER = Path(__file__).resolve().parents[1] / "golden"
CASES = ("ahead", "shared-all", "whole-nodes")
OPTIONS = {
    "kubernetes": {"image": "registry.example/train:1", "queue": "gpus", "dra": "true"},
}


def golden_emitters() -> dict[str, Emitter]:
    """Return every emitter, with the options that it cannot do without."""
    return {name: configured(one, OPTIONS.get(name, {})) for name, one in emitters().items()}


def outcome(emitter: Emitter, manifest: Manifest) -> dict[str, str]:
    """Emit; a refusal is a file too. The digest, which changes with the planner's version, is left out."""
    try:
        files = emitter.emit(manifest)
    except ManifestError as refused:
        return {"refused.txt": "".join(f"{reason}\n" for reason in (refused.got or "").split("; "))}
    return {path: text.replace(manifest.metadata.digest, "DIGEST") for path, text in files.items()}


def table() -> str:
    """Say what each emitter does with each of the ten manifests."""
    known = golden_emitters()
    lines = ["| manifest | " + " | ".join(known) + " |", "|---" * (len(known) + 1) + "|"]
    reasons = []
    accepted = dict.fromkeys(known, 0)
    for case, make in TEN.items():
        cells = []
        for name, emitter in known.items():
            files = outcome(emitter, make())
            refused = files.get("refused.txt", "").splitlines()
            cells.append("refused" if refused else str(len(files)))
            accepted[name] += not refused
            reasons += [f"- {case}, {name}: {reason}" for reason in refused]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    lines.append("| emitted | " + " | ".join(str(count) for count in accepted.values()) + " |")
    head = "Ten manifests and every emitter: numbers of files, or refused. Made by tests/support/golden.py."
    return "\n".join([head, "", *lines, "", "Why:", "", *reasons]) + "\n"


def joint_manifest(case: str) -> str:
    """Write a manifest of tasks that run jointly, without what changes with the versions of solvers."""
    manifest = manifest_of(JOINT[case]())
    document = msgspec.to_builtins(manifest)
    document["metadata"]["digest"] = "DIGEST"
    document["spec"]["inputs"]["planner"] = "VERSION"
    del document["spec"]["certificate"]
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def remake() -> None:
    """Write all golden files again."""
    (FOLDER / "joint").mkdir(exist_ok=True)
    for case in JOINT:
        (FOLDER / "joint" / f"{case}.json").write_text(joint_manifest(case), encoding="utf-8")
    for name, emitter in golden_emitters().items():
        if name == "torchrun":
            continue
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        for case in CASES:
            for path, text in outcome(emitter, TEN[case]()).items():
                target = FOLDER / name / case / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
    (FOLDER / "launchers.md").write_text(table(), encoding="utf-8")


if __name__ == "__main__":
    remake()
