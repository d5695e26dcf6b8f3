"""Start a PostgreSQL server of our own, where its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Return the URL of a fresh database; skips where there is no server or driver to start."""
    pytest.importorskip("psycopg")
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("PostgreSQL is not installed")
    user = _user()
    data = folder / "pg"
    data.mkdir()
    if user is not None:
        shutil.chown(data, user=user)
        for parent in (folder, *folder.parents):
            if parent.owner() == "root" and parent != Path("/") and not parent.stat().st_mode & 0o005:
                parent.chmod(parent.stat().st_mode | 0o005)
    as_user = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "LC_ALL": "C"}

    def run(*words: str) -> None:
        done = subprocess.run(
            [*as_user, *words], env=env, cwd=data, capture_output=True, text=True, check=False
        )
        if done.returncode:
            pytest.skip(f"PostgreSQL does not start here: {done.stderr.strip()[-200:]}")

    run(initdb, "-D", str(data / "db"), "-U", "loop", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    run(pg_ctl, "-D", str(data / "db"), "-w", "-l", str(data / "log"), "-o", options, "start")
    try:
        yield f"postgresql+psycopg://loop@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run(
            [*as_user, pg_ctl, "-D", str(data / "db"), "-m", "immediate", "stop"],
            cwd=data,
            capture_output=True,
            check=False,
        )


def _program(name: str) -> str | None:
    found = shutil.which(name)
    if found is not None:
        return found
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else None


def _user() -> str | None:
    """Name whom the server runs as: it refuses to be root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return pwd.getpwnam("nobody").pw_name
