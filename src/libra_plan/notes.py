"""Notes and warnings for people, on their way from the library to whoever shows them.

A public function that has something to say beside its result takes `notes`, a function of one line of
text. The command prints the lines to stderr. The default logs them, so that programs decide.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Notes", "log_note"]

Notes = Callable[[str], None]

_WARNING = "warning: "


def log_note(text: str) -> None:
    """Log a line to the logger `libra_plan`: a warning where it begins so, else as information."""
    import logging

    logger = logging.getLogger("libra_plan")
    if text.startswith(_WARNING):
        logger.warning(text.removeprefix(_WARNING))
    else:
        logger.info(text)
