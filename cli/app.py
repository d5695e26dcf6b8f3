"""The `libra-plan` program: verbs, exit codes, nothing else. Heavy packages are imported by verbs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from libra_plan import __version__
from libra_plan.cli import manifest_verbs, plan_verbs, profile_verbs
from libra_plan.cli.settings import default_map
from libra_plan.errors import LibraError

__all__ = ["app", "main"]

app = typer.Typer(
    name="libra-plan",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Plan which GPUs each role of each RL post-training task gets.\n\n"
    "Example: libra-plan solve profiles/ --gpus 8\n\n"
    "Every option can be set by an environment variable (LIBRA_PLAN_SOLVE_POLICY=max-min) or in "
    "libra-plan.yaml (solve: {policy: max-min}); a flag wins over both.\n\n"
    "Exit codes: 0 done, 1 defect, 2 bad input, 3 no plan exists, 4 no plan within the time limit, "
    "5 another run holds the state, 6 a role could not be started or stopped.",
)
plan_verbs.register(app)
manifest_verbs.register(app)
app.add_typer(profile_verbs.app, name="profile")


@app.callback()
def _before(
    context: typer.Context,
    config: Annotated[
        str | None, typer.Option(help="Settings file; default: libra-plan.yaml here, if there is one.")
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.")] = False,
) -> None:
    if version:
        typer.echo(f"libra-plan {__version__}")
        raise typer.Exit
    context.default_map = dict(default_map(config))


def main() -> None:
    """Run the program; turn expected errors into one line and their exit code."""
    try:
        app(auto_envvar_prefix="LIBRA_PLAN")
    except LibraError as error:
        typer.echo(f"libra-plan: {error.message}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(141)  # the reader left, as `head` does
