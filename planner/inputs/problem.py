"""From a profiles folder, a cluster and the running plan to a priced problem."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from libra_plan.errors import InputError, WorkloadError
from libra_plan.models.corrections import CORRECTIONS, INSIDE, CorrectionsFile, read_corrections
from libra_plan.notes import Notes, log_note
from libra_plan.planner.inputs.cluster import ClusterFlags, read_cluster
from libra_plan.planner.inputs.gpu_names import check_gpu_names
from libra_plan.planner.pricing import price_workload
from libra_plan.planner.problem import IncumbentTask, Policy, Problem, StageOption
from libra_plan.profiles.catalog import (
    ProfilesFolder,
    find_folder,
    load_folder,
    load_profile,
    shipped_folder,
    user_folder,
)
from libra_plan.profiles.counting import counted
from libra_plan.profiles.schema import WorkloadFile
from libra_plan.profiles.switch_costs import STORE, SwitchPrice, read_switch_costs, switch_prices
from libra_plan.profiles.wording import did_you_mean

if TYPE_CHECKING:
    from libra_plan.planner.launchers.manifest import Manifest

__all__ = ["PriceSettings", "PricedProblem", "load", "read_problem", "with_workload", "workload_of"]


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """The settings of pricing: the arguments of `price`."""

    flags: ClusterFlags = field(default_factory=ClusterFlags)
    policy: str = "throughput"
    budget: float | None = None
    allow_prior: bool = False
    ahead_steps: int | None = None
    seed: int = 0


@dataclass(frozen=True, repr=False)
class PricedProblem(Problem):
    """A problem that knows the folder it was priced from and the manifest of the running plan.

    Attributes
    ----------
    folder
        The profiles folder with its workload, whose commands a manifest carries.
    parent
        The manifest of the running plan, or None.
    """

    folder: ProfilesFolder = field(kw_only=True, repr=False, compare=False)
    parent: Manifest | None = field(default=None, kw_only=True, repr=False, compare=False)

    def __repr__(self) -> str:
        options = sum(len(role.options) for task in self.tasks for role in task.roles)
        return (
            f"PricedProblem({counted(len(self.tasks), 'task')} on {counted(len(self.cluster.gpus), 'GPU')}, "
            f"{counted(options, 'priced option')}, policy {self.policy.value})"
        )

    @property
    def problem(self) -> Problem:
        """The problem alone, as it is recorded."""
        return Problem(**{each.name: getattr(self, each.name) for each in fields(Problem)})


def workload_of(problem: Problem) -> WorkloadFile | None:
    """Return the workload that a problem was priced from, where it is known."""
    return problem.folder.workload if isinstance(problem, PricedProblem) else None


def load(path: str | Path) -> ProfilesFolder:
    """Load a profiles folder: the workload, the cluster, the profiles, the switching costs.

    Parameters
    ----------
    path
        A folder, or the name of one: `profiles` is the shipped one.

    Returns
    -------
    ProfilesFolder
        What the folder holds, checked. Of a folder with a workload only the profiles that it names.

    Raises
    ------
    InputError
        If a file of the folder is wrong; the message names file, line and key.

    Examples
    --------
    >>> import libra_plan as lp
    >>> folder = lp.load("profiles")
    >>> [task.id for task in folder.workload.tasks]
    ['agent-7b', 'reward-1.5b', 'eval-7b']
    """
    return load_folder(find_folder(path), named_only=True)


def with_workload(folder: ProfilesFolder, workload: WorkloadFile) -> ProfilesFolder:
    """Return the folder with another workload, and with the profiles that this workload adds."""
    profiles = dict(folder.profiles)
    for name in dict.fromkeys(n for task in workload.tasks for role in task.roles for n in role.profiles):
        places = (place / name for place in (folder.path, user_folder(), shipped_folder()))
        found = next((place for place in places if (place / "profile.yaml").is_file()), None)
        if name not in profiles and found is not None:
            profiles[name] = load_profile(found)
        elif name not in profiles:
            raise WorkloadError(
                "a task names a profile that is not there", got=name, allowed="a known profile"
            )
    return replace(folder, workload=workload, profiles=profiles)


def read_problem(
    source: str | Path | ProfilesFolder,
    settings: PriceSettings,
    *,
    parent: Manifest | None = None,
    corrections: str | Path | None = None,
    switch_costs: Sequence[Path] = (),
    notes: Notes = log_note,
) -> PricedProblem:
    """Price the workload of a folder on the cluster that the settings name.

    `parent` is the manifest of the running plan; moving away from it costs what was recorded in the
    first file that is there: one of `switch_costs`, or that beside the profiles. `corrections` is a file
    of `profile drift`. `notes` gets warnings, and what was read beside the folder.
    """
    folder = source if isinstance(source, ProfilesFolder) else load(source)
    if folder.workload is None:
        raise WorkloadError(
            "there is nothing to plan: the folder has no workload.yaml",
            got=folder.path,
            allowed="a folder with workload.yaml; profiles it names may lie elsewhere",
            way_out="start from the shipped one: profiles/workload.yaml",
        )
    policy = _policy(settings.policy)
    cluster = read_cluster(folder, settings.flags, notes)
    check_gpu_names(folder, cluster)
    moves = {} if parent is None else _move_prices(switch_costs, folder.path, notes)
    corrected, sha256 = (None, "") if corrections is None else read_corrections(Path(corrections))
    problem = price_workload(
        folder,
        cluster,
        policy=policy,
        running=_placements(parent),
        seed=settings.seed,
        allow_prior=settings.allow_prior,
        at_steps_ahead=settings.ahead_steps,
        budget_per_hour=settings.budget,
        corrections=corrected,
        moves=moves,
    )
    digests = dict(problem.input_digests)
    if corrected is not None and corrections is not None:
        _tell_corrections(problem, corrected, corrections, notes)
        digests[CORRECTIONS] = sha256
    if moves:
        text = json.dumps({task: one.p90_s for task, one in moves.items()}, sort_keys=True)
        digests[STORE] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    values = {each.name: getattr(problem, each.name) for each in fields(Problem)}
    return PricedProblem(**{**values, "input_digests": digests}, folder=folder, parent=parent)


def _placements(parent: Manifest | None) -> tuple[IncumbentTask, ...]:
    if parent is None:
        return ()
    from libra_plan.planner.launchers.document import placements_of  # with a running plan only

    return placements_of(parent)


def _policy(name: str) -> Policy:
    known = [each.value for each in Policy]
    if name not in known:
        raise InputError(
            "no such policy",
            got=name,
            allowed=", ".join(known),
            way_out=did_you_mean(name, known) or None,
        )
    return Policy(name)


def _move_prices(files: Sequence[Path], profiles: Path, notes: Notes) -> Mapping[str, SwitchPrice]:
    """Read the recorded costs of moves, by task."""
    found = next((path for path in (*files, profiles / STORE) if path.exists()), None)
    moves = {} if found is None else switch_prices(read_switch_costs(found))
    for task, one in moves.items():
        notes(
            f"moving {task} is priced at {one.p90_s:.3g} s: measured, 90th percentile of {one.records} moves"
        )
    return moves


def _tell_corrections(problem: Problem, file: CorrectionsFile, path: str | Path, notes: Notes) -> None:
    """Note which roles are corrected by which factor, and why others are not."""
    roles = {(task.id, role.id): role for task in problem.tasks for role in task.roles}
    for key, known in file.by_role.items():
        name = f"{key[0]}/{key[1]}"
        if key not in roles:
            notes(f"warning: {path} corrects {name}, which the workload has not")
        elif corrected := [o for o in roles[key].options if f"corrected {known.words}" in o.notes]:
            notes(f"corrected: {name} {known.words}{_outside(corrected)}")
        elif known.state.known:
            notes(f"not corrected: {name}: none of its options is on that GPU class with that profile")
        else:
            notes(f"not corrected: {name}: too few windows were compared")


def _outside(corrected: Sequence[StageOption]) -> str:
    """Return how many of the options lie outside the range in which the factor was observed."""
    outside = sum(option.time_s.origin not in INSIDE for option in corrected)
    if not outside:
        return ""
    return (
        f"; {outside} of its {counted(len(corrected), 'option')} lie outside what was measured: same factor, "
        "and bounds that hold none of it"
    )
