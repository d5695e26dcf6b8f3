"""Read frozen allocation instances into the optimizer's resources and tasks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def read_case(path: Path) -> dict[str, Any]:
    """Read a case file, gzipped or not."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    case: dict[str, Any] = json.loads(data)
    return case


