"""Run emitted scripts with programs that only write down what they were given."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

RECORDER = """#!/bin/sh
env -0 > "$RECORD.env"
: > "$RECORD.argv"
for word; do printf '%s\\0' "$word" >> "$RECORD.argv"; done
"""


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write emitted files below a folder."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text.encode())


def recorded(
    folder: Path, script: str, programs: tuple[str, ...], *arguments: str, **environment: str
) -> tuple[list[str], dict[str, str]]:
    """Run a script; give what the last recording program got: its arguments and environment."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for program in programs:
        (tools / program).write_text(RECORDER)
        (tools / program).chmod(0o755)
    record = folder / "record"
    shell = shutil.which("sh") or "/bin/sh"
    subprocess.run(
        [shell, str(folder / script), *arguments],
        cwd=folder,
        check=True,
        env={"PATH": f"{tools}:{os.environ['PATH']}", "RECORD": str(record), **environment},
    )
    argv = record.with_suffix(".argv").read_bytes().decode().split("\0")[:-1]
    pairs = record.with_suffix(".env").read_bytes().decode().split("\0")[:-1]
    return argv, dict(pair.split("=", 1) for pair in pairs)
