"""Run `libra-plan` as its users do: as a program, on a terminal, or in this process for speed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

import libra_plan

SOURCES = Path(libra_plan.__file__).resolve().parents[1]
PROGRAM = (sys.executable, "-m", "libra_plan.cli")
_PATIENCE_S = 120


@dataclass(frozen=True)
class Ran:
    """What a run left: exit code and both streams."""

    code: int
    out: str
    err: str


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which the package is found and nothing of the user's own decides."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("LIBRA_PLAN_SOLVE")}
    sources = os.pathsep.join(filter(None, (str(SOURCES), os.environ.get("PYTHONPATH"))))
    return {**own, "PYTHONPATH": sources, **more}


def program(*words: str | Path, cwd: Path | None = None, **more: str) -> Ran:
    """Run the program with its output piped."""
    done = subprocess.run(
        [*PROGRAM, *map(str, words)],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def on_terminal(
    words: Sequence[str | Path],
    *,
    columns: int = 80,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    cwd: Path | None = None,
    **more: str,
) -> Ran:
    """Run the program on a terminal of so many columns; both streams come back as `out`.

    `keys` maps a text to what is typed once it has been written, one key after the other.
    """
    pid, handle = pty.fork()
    if pid == 0:
        try:
            os.chdir(cwd or Path.cwd())
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            env = environment(TERM="xterm-256color", **more)
            env.pop("COLUMNS", None)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a job in the background inherits it ignored
            os.execve(PROGRAM[0], [*PROGRAM, *map(str, words)], env)
        finally:
            os._exit(127)
    written = _converse(pid, handle, dict(keys or {}))
    return Ran(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), written.replace("\r\n", "\n"), "")


def _converse(pid: int, handle: int, keys: dict[str, tuple[str, ...]]) -> str:
    written, ends = b"", time.monotonic() + _PATIENCE_S
    while True:
        if time.monotonic() > ends:
            os.kill(pid, signal.SIGKILL)  # our own child, by its id
            raise TimeoutError(written.decode())
        if not select.select([handle], [], [], 1.0)[0]:
            continue
        try:
            read = os.read(handle, 65536)
        except OSError:  # Linux says EIO when the other side of a terminal is closed
            read = b""
        if not read:
            os.close(handle)
            return written.decode()
        written += read
        for text in [text for text in keys if text.encode() in written]:
            for key in keys.pop(text):
                os.write(handle, key.encode())
                time.sleep(0.02)  # two presses at once would be one signal; much later all is over


def train_task(name: str = "rm", *, model: str = "0.5b", samples: int = 256, weight: float = 1.0) -> dict:
    """Return a task of one role that trains on a shipped profile: the quickest one to price."""
    role = {
        "id": "reward-model",
        "kind": "reward_train",
        "profiles": [f"h200-qwen2.5-{model}-train"],
        "micro_batch_tokens": 16384,
        "command": ["train.py", name],
    }
    work = {"samples": samples, "prompt_tokens": {"kind": "fixed", "tokens": 1024}}
    return {"id": name, "weight": weight, "work_per_step": work, "roles": [role]}


def write_workload(folder: Path, tasks: Sequence[dict]) -> Path:
    """Write a profiles folder of nothing but a workload; the shipped profiles are borrowed."""
    folder.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump({"schema_version": 1, "tasks": list(tasks)}, sort_keys=False)
    (folder / "workload.yaml").write_text(text, encoding="utf-8")
    return folder
