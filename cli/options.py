"""Options that several verbs have in common, said once: the fields of a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

__all__ = ["with_options"]

Given = TypeVar("Given")
Own = ParamSpec("Own")


def with_options(
    options: type[Given],
) -> Callable[[Callable[Concatenate[Given, Own], None]], Callable[..., None]]:
    """Give a verb the fields of a dataclass as options; it gets them together, as its first argument."""
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
