"""Options said once reach every verb that has them, beside its own."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from libra_plan.cli.flags import with_options


@dataclass(frozen=True)
class Shared:
    name: Annotated[str, typer.Argument(help="Whom.")]
    times: Annotated[int, typer.Option(help="How often.", min=1)] = 1


@with_options(Shared)
def greet(given: Shared, loud: Annotated[bool, typer.Option("--loud", help="Shout.")] = False) -> None:
    """Greet somebody."""
    typer.echo(" ".join([given.name.upper() if loud else given.name] * given.times))


def test_a_verb_gets_the_shared_options_together_and_its_own_apart() -> None:
    """A list of options repeated in each verb comes apart when one of them gets another default."""
    app = typer.Typer()
    app.command()(greet)
    assert list(inspect.signature(greet).parameters) == ["name", "times", "loud"]
    for words, said in ((["ann"], "ann"), (["ann", "--times", "2", "--loud"], "ANN ANN")):
        ran = CliRunner().invoke(app, words)
        assert (ran.exit_code, ran.output.strip()) == (0, said)
    assert CliRunner().invoke(app, ["ann", "--times", "0"]).exit_code == 2
