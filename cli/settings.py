"""The settings file: defaults for options, by verb. A flag wins over the environment, that over the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from libra_plan.errors import InputError, Where

__all__ = ["SETTINGS", "default_map"]

SETTINGS = "libra-plan.yaml"


def default_map(config: str | None) -> Mapping[str, object]:
    """Read the settings file; without `config`, the one in the working folder if there is one."""
    path = Path(config or SETTINGS)
    if config is None and not path.is_file():
        return {}
    from libra_plan.profiles.document import read_document  # only when there is a file

    document = read_document(path)
    if not isinstance(document.data, dict):
        raise InputError(
            "settings must map verbs to their options",
            got=type(document.data).__name__,
            allowed="solve: {policy: max-min}",
            where=Where(str(path)),
        )
    return {verb: _options(verb, options, path) for verb, options in document.data.items()}


def _options(verb: str, options: object, path: Path) -> dict[str, object]:
    if not isinstance(options, dict):
        raise InputError(
            "settings of a verb must be a mapping",
            got=options,
            allowed="{policy: max-min}",
            where=Where(str(path), key=verb),
        )
    return {name.replace("-", "_"): value for name, value in options.items()}
