"""Refuse to build from a checkout whose links were lost; everything else is in pyproject.toml.

`src/libra_plan/<room>` are links. Where they were unpacked as text files (a .zip archive, git
without core.symlinks) a wheel would build without the rooms and fail only when imported.
"""

from pathlib import Path

from setuptools import setup

package = Path(__file__).resolve().parent / "src" / "libra_plan"
for room in ("planner", "models", "profiles", "cli"):
    if not (package / room / "__init__.py").is_file():
        raise SystemExit(
            f"src/libra_plan/{room} is not a folder: this checkout lost its symbolic links; "
            "clone with `git -c core.symlinks=true clone`, or use the .tar.gz archive or the sdist"
        )

setup()
