"""The `libra-plan` program: verbs, exit codes, nothing else. Heavy packages are imported by verbs."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from libra_plan import __version__
from libra_plan.cli import render
from libra_plan.cli.errors import Interrupted, UsageFault, line_of
from libra_plan.cli.program import NAME, app
from libra_plan.cli.settings import default_map, name_variables, unknown_variables
from libra_plan.errors import LibraError

__all__ = ["app", "hear_interrupts", "main", "run"]

_INTERRUPTED = 130  # what shells give a program that Ctrl-C ended
_NO_READER = 141  # and one whose reader left
_pressed: list[int] = []

_VERBS = (
    "libra_plan.cli.plan_verbs",
    "libra_plan.cli.manifest_verbs",
    "libra_plan.cli.monitor_verbs",
    "libra_plan.cli.handover_verbs",
    "libra_plan.cli.replan_verbs",
    "libra_plan.cli.schema_verb",
    "libra_plan.cli.throughput_verbs",
    "libra_plan.cli.batch_verb",
    "libra_plan.cli.doctor_verb",
    "libra_plan.cli.simulate_verb",
    "libra_plan.cli.profile_verbs",
    "libra_plan.cli.task_verbs",
)
"""The modules whose verbs join the program, in the order in which the help lists them."""

for _name in _VERBS:
    import_module(_name)


def _version(asked: bool) -> None:
    if asked:
        render.print_text(f"{NAME} {__version__}")
        raise typer.Exit


@app.callback()
def _before(
    context: typer.Context,
    config: Annotated[
        str | None, typer.Option(help="Settings file; default: libra-plan.yaml here, if there is one.")
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_version),
    ] = False,
) -> None:
    defaults, path = default_map(config, context.command)
    for line in unknown_variables(os.environ, context.command, "LIBRA_PLAN"):
        render.note(f"warning: {line}")
    context.default_map = defaults
    context.meta["settings"] = path


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program and give its exit code; expected errors become one line on stderr."""
    command: Any = typer.main.get_command(app)
    name_variables(command, "LIBRA_PLAN")
    try:
        given = None if arguments is None else list(arguments)
        result = command.main(args=given, prog_name=NAME, standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as left:  # Typer leaves with 1 when the reader of stdout has left
        if isinstance(left.__context__, BrokenPipeError):
            return _reader_left()
        raise
    except (Interrupted, KeyboardInterrupt, typer.Abort) as left:
        told = str(left) if isinstance(left, Interrupted) else ""
        render.note(f"{NAME}: interrupted {told}".rstrip())
        return _INTERRUPTED
    except (LibraError, UsageFault) as error:
        return _fault(error, sys.argv[1:] if arguments is None else arguments)
    except Exception:
        if not _pressed:
            raise
        # modules in C turn a Ctrl-C while they are loaded into an ImportError
        render.note(f"{NAME}: interrupted")
        return _INTERRUPTED
    if result == _INTERRUPTED:
        render.note(f"{NAME}: interrupted")
    return result if isinstance(result, int) else 0


def _fault(error: Any, arguments: Sequence[str]) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
    else:
        context = getattr(error, "ctx", None)
        settings = None if context is None else context.meta.get("settings")
        render.note(f"{NAME}: {line_of(error, settings, arguments)}")
    return int(error.exit_code)


def hear_interrupts() -> None:
    """Remember that Ctrl-C was pressed, whatever becomes of the exception; ignored, it stays ignored."""

    def press(number: int, _: object) -> NoReturn:
        _pressed.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, press)


def _reader_left() -> int:
    # so that the interpreter does not complain about the rest of the output when it ends
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - lives to the end
    return _NO_READER


def main() -> NoReturn:
    """Run the program; the process ends here."""
    for stream in (sys.stdout, sys.stderr):
        # Paths may hold bytes that are no text; a message must not fail for that
        if hasattr(stream, "reconfigure"):
            terminal = stream.isatty()
            stream.reconfigure(encoding=None if terminal else "utf-8", errors="backslashreplace")
    hear_interrupts()
    gc.set_threshold(100_000, 50, 50)  # a short process makes much that lives to its end
    code = run()
    try:
        sys.stdout.flush()
    except OSError:  # reported already
        _reader_left()
    if code == _INTERRUPTED and threading.active_count() > 1:
        sys.stdout.flush()
        os._exit(code)  # a solver that was left behind would hold the process
    sys.exit(code)
