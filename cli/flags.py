"""Flags that several verbs have in common."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Annotated, Concatenate, ParamSpec, TypeVar

import typer

__all__ = [
    "AheadSteps",
    "AllowPrior",
    "Budget",
    "ClusterPath",
    "CorrectionsGiven",
    "CorrectionsOption",
    "Deterministic",
    "Form",
    "FormOption",
    "Gap",
    "GpuClass",
    "Gpus",
    "Local",
    "PerNode",
    "PolicyName",
    "PolicyOption",
    "Profiles",
    "Running",
    "Seed",
    "SolverName",
    "SolverOption",
    "SwitchCosts",
    "SwitchCostsFrom",
    "TimeLimit",
    "with_options",
]


class Form(str, Enum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class PolicyName(str, Enum):
    """What the plan maximises."""

    THROUGHPUT = "throughput"
    MAX_MIN = "max-min"
    PRIORITY = "priority"
    FAIR_SHARE = "fair-share"


class SolverName(str, Enum):
    """The solver that chooses among the ways to run each task."""

    CP_SAT = "cp-sat"
    HIGHS = "highs"
    CBC = "cbc"


Profiles = Annotated[
    Path, typer.Argument(help="Profiles folder with workload.yaml; a path, or the name of a shipped one.")
]
Gpus = Annotated[
    int | None, typer.Option(help="Plan for N equal GPUs in nodes of --gpus-per-node.", min=1, max=100_000)
]
PerNode = Annotated[int, typer.Option(help="GPUs per node for --gpus.", min=1, max=1024)]
GpuClass = Annotated[str | None, typer.Option(help="GPU class for --gpus, when profiles have several.")]
ClusterPath = Annotated[Path | None, typer.Option("--cluster", help="Cluster file with nodes and GPUs.")]
Local = Annotated[bool, typer.Option("--local", help="Plan for the GPUs of this machine (NVML).")]
PolicyOption = Annotated[PolicyName, typer.Option(help="What to maximise.")]
Budget = Annotated[
    float | None,
    typer.Option(help="Most the GPUs may cost an hour, at the cluster file's price_per_gpu_hour.", min=0.0),
]
TimeLimit = Annotated[float, typer.Option("--time-limit", help="Seconds to search.", min=0.01)]
Gap = Annotated[float, typer.Option(help="Stop at this proven relative gap.", min=0.0)]
SolverOption = Annotated[SolverName, typer.Option("--solver", help="Who searches; the others are a check.")]
Deterministic = Annotated[bool, typer.Option("--deterministic", help="The same plan bit for bit.")]
AllowPrior = Annotated[
    bool, typer.Option("--allow-prior", help="Let models answer beyond what was measured, and say so.")
]
AheadSteps = Annotated[
    int | None,
    typer.Option(
        "--ahead-steps",
        help="Plan for the step N from now, with lengths forecast from history_tokens.",
        min=0,
    ),
]
CorrectionsOption = Annotated[
    Path | None,
    typer.Option(help="Corrections that `profile drift` wrote; default: corrections.json in --out."),
]
CorrectionsGiven = Annotated[Path | None, typer.Option(help="Corrections that `profile drift` wrote.")]
Seed = Annotated[int, typer.Option(help="Seed of sampled lengths and of the solver.")]
FormOption = Annotated[Form, typer.Option("--format", help="How to write the result.")]
Running = Annotated[
    Path | None, typer.Option("--from", help="Manifest of the running plan: moves cost, keeping is free.")
]
SwitchCosts = Annotated[
    Path | None,
    typer.Option(
        "--switch-costs",
        help="Recorded costs of moves (switch_costs.jsonl); default: that in the folder of --from or "
        "--out, or beside the profiles.",
    ),
]
SwitchCostsFrom = Annotated[
    Path | None,
    typer.Option(
        "--switch-costs",
        help="Recorded costs of moves (switch_costs.jsonl); default: that in the folder of --from, or beside "
        "the profiles.",
    ),
]
Given = TypeVar("Given")
Own = ParamSpec("Own")


def with_options(
    options: type[Given],
) -> Callable[[Callable[Concatenate[Given, Own], None]], Callable[..., None]]:
    """Add the fields of a dataclass to a verb as flags; the verb gets them as its first argument."""
    shared = inspect.signature(options, eval_str=True).parameters

    def of_verb(verb: Callable[Concatenate[Given, Own], None]) -> Callable[..., None]:
        own = list(inspect.signature(verb, eval_str=True).parameters.values())[1:]

        def command(**values: object) -> None:
            given = options(**{name: values.pop(name) for name in shared})
            verb(given, **values)  # type: ignore[arg-type,call-arg] # what is left are its own

        told = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*shared.values(), *own)]
        command.__name__, command.__doc__ = verb.__name__, verb.__doc__
        command.__signature__ = inspect.Signature(told)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in told}
        return command

    return of_verb
