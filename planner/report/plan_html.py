"""A plan as HTML, which notebooks show: the picture, both tables and the proof."""

from __future__ import annotations

from html import escape

from libra_plan.planner.plan import Plan
from libra_plan.planner.problem import Problem
from libra_plan.planner.report.plan_picture import plan_svg
from libra_plan.planner.report.plan_text import Table, proof_lines, role_table, task_table

__all__ = ["plan_html"]


def plan_html(problem: Problem, plan: Plan) -> str:
    """Return a fragment of HTML without styles or scripts of its own."""
    waits = "".join(f"<li>[{escape(each.code)}] {escape(each.reason)}</li>" for each in plan.queued)
    parts = [
        _html_table(task_table(problem, plan)),
        _html_table(role_table(problem, plan)),
        f"<p>Waiting:</p><ul>{waits}</ul>" if waits else "",
        *(f"<p>{escape(line)}</p>" for line in proof_lines(plan)),
        plan_svg(problem, plan) if plan.running else "",
    ]
    return f"<div>{''.join(parts)}</div>"


def _html_table(table: Table) -> str:
    columns, rows, right = table

    def line(tag: str, cells: list[str]) -> str:
        sides = ["right" if at in right else "left" for at in range(len(cells))]
        texts = [
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        ]
        return f"<tr>{''.join(texts)}</tr>"

    body = "".join(line("td", row) for row in rows)
    return f"<table><thead>{line('th', columns)}</thead><tbody>{body}</tbody></table>"
