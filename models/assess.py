"""Fit, check and query the profiles at a path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from libra_plan.errors import RefusedError, writing
from libra_plan.models.curves.errors import ProfileCheck, check_profile
from libra_plan.models.fit import FittedProfile
from libra_plan.models.fits import cached_fit
from libra_plan.models.predict import CostPrediction, predict
from libra_plan.models.questions import BadQuestion, CostQuestion, read_questions
from libra_plan.profiles.catalog import profiles_at
from libra_plan.profiles.counting import counted

__all__ = ["CostAnswers", "check_profiles", "fit_profiles", "predict_costs"]


@dataclass(frozen=True)
class CostAnswers:
    """Answers in the order of the questions, and notes about them."""

    questions: Sequence[CostQuestion | BadQuestion]
    answers: Sequence[CostPrediction]
    notes: tuple[str, ...]

    @property
    def refused(self) -> int:
        """The number of questions without an answer."""
        return sum(answer.refusal is not None for answer in self.answers)

    def require_answers(self) -> None:
        """Raise a RefusedError where every question was refused."""
        if self.answers and self.refused == len(self.answers):
            raise RefusedError(
                "no question was answered",
                got=f"{counted(self.refused, 'row')}, each refused with its reason",
                way_out="mend the questions, or allow_prior (--allow-prior) where nothing was measured",
            )


def fit_profiles(path: str | Path) -> dict[str, FittedProfile]:
    """Fit every profile at a path, and keep the fits in the cache.

    Parameters
    ----------
    path
        A profiles folder or one profile's folder; a path, or the name of a shipped one.

    Returns
    -------
    dict[str, FittedProfile]
        The fitted cost models by the id of the profile.

    Raises
    ------
    InputError
        If a file is missing or wrong, with its line and key.

    Examples
    --------
    >>> import libra_plan as lp
    >>> list(lp.fit_profiles("profiles/h200-qwen2.5-0.5b-decode"))
    ['h200-qwen2.5-0.5b-decode']
    """
    return {name: cached_fit(profile) for name, profile in profiles_at(path).items()}


def check_profiles(path: str | Path, *, plot: Path | None = None) -> tuple[ProfileCheck, ...]:
    """Check how well each profile predicts points that it was not fitted to.

    Every point is predicted with its whole group (one batch, one length or one place) left out.

    Parameters
    ----------
    path
        A profiles folder or one profile's folder; a path, or the name of a shipped one.
    plot
        A file (.png or .svg) that takes a picture of predicted against measured; needs matplotlib.

    Returns
    -------
    tuple[ProfileCheck, ...]
        Errors of every profile and layout, how often the bounds hold, and the worst points.

    Raises
    ------
    InputError
        If a file is missing or wrong, or the picture cannot be made.

    Examples
    --------
    >>> import libra_plan as lp
    >>> (check,) = lp.check_profiles("profiles/h200-qwen2.5-0.5b-decode")
    >>> check.layouts[0].time.median < 0.05
    True
    """
    checks = tuple(check_profile(each, cached_fit(each)) for each in profiles_at(path).values())
    if plot is not None:
        from libra_plan.models.curves.plot import plot_checks

        with writing(plot):
            plot_checks(checks, plot)
    return checks


def predict_costs(
    path: str | Path, points: str | Path, *, set_name: str | None = None, allow_prior: bool = False
) -> CostAnswers:
    r"""Predict time and memory for every row of a CSV file, or say why not.

    Parameters
    ----------
    path
        A profiles folder or one profile's folder; a path, or the name of a shipped one.
    points
        CSV file, one question a row: role, model, precision, batch, seq_len and so on.
    set_name
        Take profiles whose id begins with this and a hyphen.
    allow_prior
        Whether models and layouts that were not measured are predicted from others.

    Returns
    -------
    CostAnswers
        The questions, an answer to each, and notes.

    Raises
    ------
    InputError
        If a file is missing or wrong; a row that cannot be answered is refused in its answer.

    Examples
    --------
    >>> import libra_plan as lp
    >>> from pathlib import Path
    >>> _ = Path("points.csv").write_text("role,model,batch,seq_len\ndecode,qwen2.5-0.5b,4,1024\n")
    >>> (answer,) = lp.predict_costs("profiles/h200-qwen2.5-0.5b-decode", "points.csv").answers
    >>> answer.origin
    'interpolated'
    """
    loaded, questions = profiles_at(path), read_questions(points)
    found = predict(loaded, questions.rows, fit=cached_fit, set_name=set_name, allow_prior=allow_prior)
    unused = [f"columns that were not read: {', '.join(questions.unused)}"] if questions.unused else []
    return CostAnswers(questions.rows, found.rows, (*unused, *found.notes))
