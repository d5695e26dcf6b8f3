"""Make docs/api.md from docstrings: `python tests/support/api_page.py > docs/api.md`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import libra_plan

__all__ = ["SECTIONS", "documented", "page", "sections_of"]

SECTIONS = ("Parameters", "Attributes", "Returns", "Raises", "Examples")

HEAD = """# Python API

`import libra_plan as lp` loads nothing but the table of names below; each name loads when it is first used.

```python
import libra_plan as lp

plan = lp.solve("profiles/", gpus=8)
print(plan.summary())

for running in plan.running:
    print(running.task, len(running.gpus), "GPUs,", running.configuration.step_time_s.value, "s a step")

print(lp.verify(plan).violations)
print(lp.explain(plan).summary())
plan.save("run/")
```

Functions take what the flags of the command take, under the same names, and raise what the command prints:
a `LibraError` says what is wrong, what was got, what is allowed and the way out. Notes and warnings go to
`notes`, a function of one line of text; by default they are logged to the logger `libra_plan`. Notebooks show
a plan as a picture with its tables.

This page is made from the docstrings, and tests run its examples.
"""


def page() -> str:
    """Write the whole page."""
    names = [name for name in libra_plan.__all__ if not name.startswith("__")]
    functions = [name for name in names if not inspect.isclass(getattr(libra_plan, name))]
    errors = [name for name in names if _is_error(getattr(libra_plan, name))]
    classes = [name for name in names if name not in functions and name not in errors]
    parts = [HEAD, "## Functions\n"]
    parts += [_entry(name, getattr(libra_plan, name)) for name in functions]
    parts.append("## Classes\n")
    for name in classes:
        parts.append(_entry(name, getattr(libra_plan, name)))
        parts += [_entry(f"{name}.{of}", method) for of, method in _methods(getattr(libra_plan, name))]
    parts.append("## Errors\n")
    for name in errors:
        cls = getattr(libra_plan, name)
        parts.append(f"- `{name}` (exit code {cls.exit_code}): {_summary(cls)}")
    return "\n".join(parts) + "\n"


def documented() -> Iterator[tuple[str, Any]]:
    """List every public function and class, and the methods of plans, errors aside."""
    for name in libra_plan.__all__:
        value = getattr(libra_plan, name)
        if not name.startswith("__") and not _is_error(value):
            yield name, value
            if inspect.isclass(value):
                yield from ((f"{name}.{of}", method) for of, method in _methods(value))


def sections_of(value: Any) -> dict[str, str]:
    """Split a docstring into its numpy sections; what comes before them is under the empty name."""
    text = inspect.getdoc(value) or ""
    heads = "|".join(SECTIONS)
    found = re.split(rf"^({heads})\n-{{4,}}\n", text, flags=re.MULTILINE)
    return {"": found[0].strip(), **{k: v.strip("\n") for k, v in zip(found[1::2], found[2::2], strict=True)}}


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _methods(cls: type) -> list[tuple[str, Any]]:
    return [
        (name, value)
        for name, value in vars(cls).items()
        if cls is libra_plan.Plan and not name.startswith("_") and inspect.isfunction(value)
    ]


def _summary(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _entry(name: str, value: Any) -> str:
    sections = sections_of(value)
    parts = [f"### `{name}`\n"]
    if not inspect.isclass(value):
        parts.append(f"```text\n{_signature(name, value)}\n```\n")
    parts.append(sections.pop("") + "\n")
    examples = sections.pop("Examples", None)
    for title, text in sections.items():
        parts.append(f"**{title}**\n\n{_list(text)}\n")
    if examples is not None:
        parts.append(f"```pycon\n{examples.strip()}\n```\n")
    return "\n".join(parts)


def _signature(name: str, value: Any) -> str:
    """Write a signature as the source has it, one parameter a line where it is long."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    first = arguments.args[1:] if arguments.args and arguments.args[0].arg == "self" else arguments.args
    defaults = [None] * (len(first) - len(arguments.defaults)) + list(arguments.defaults)
    told = [_parameter(each, default) for each, default in zip(first, defaults, strict=True)]
    if arguments.vararg is not None:
        told.append(f"*{_parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        told.append("*")
    told += [
        _parameter(each, default)
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        told.append(f"**{_parameter(arguments.kwarg, None)}")
    after = "" if function.returns is None else f" -> {ast.unparse(function.returns)}"
    line = f"{name}({', '.join(told)}){after}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in told) + f"){after}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    kind = "" if argument.annotation is None else f": {ast.unparse(argument.annotation)}"
    return f"{argument.arg}{kind}" + ("" if default is None else f" = {ast.unparse(default)}")


def _list(text: str) -> str:
    """Turn `name` lines with an indented text below into a list."""
    items: list[str] = []
    for line in text.splitlines():
        if line and not line.startswith(" "):
            items.append(f"- `{line.strip()}`" if not line.endswith(".") else f"- {line}")
        elif line.strip():
            joint = " " if items[-1].count("\n") or ": " in items[-1] else ": "
            items[-1] += f"{joint}{line.strip()}"
    wrap = textwrap.TextWrapper(110, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(wrap.fill(item) for item in items)


if __name__ == "__main__":
    print(page(), end="")
