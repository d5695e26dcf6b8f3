"""The program that verbs join: each module of verbs adds its own with `@app.command`.

A verb is a private function that turns its flags into one call of `libra_plan` and prints the result:

    @app.command("explain", help=_EXPLAIN)
    def _explain(profiles: Profiles, gpus: Gpus = None, form: FormOption = Form.TABLE) -> None:
        explanation = lp.explain(lp.solve(profiles, gpus=gpus, notes=render.note))
        render.print_result(explanation, form)

It reads no files, fits nothing, decides nothing, and imports `libra_plan`, `libra_plan.errors` and
`libra_plan.planner.report` only.
"""

from __future__ import annotations

import typer

__all__ = ["NAME", "app"]

NAME = "libra-plan"

app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Plan which GPUs each role of each RL post-training task gets.\n\n"
    "Example: libra-plan solve profiles/ --gpus 8\n\n"
    "Options can be set by an environment variable (LIBRA_PLAN_SOLVE_POLICY=max-min) or in "
    "libra-plan.yaml (solve: {policy: max-min}); a flag wins over the environment, that over the file.\n\n"
    "Exit codes: 0 done, 1 defect, 2 bad input, 3 no plan exists, 4 no plan within the time limit, "
    "5 another run holds the state, 6 a role could not be started or stopped, 7 doctor found something.",
)
