"""`price`: the public way from a profiles folder and a cluster to a priced problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from libra_plan.errors import InputError
from libra_plan.models.topology import Cluster
from libra_plan.notes import Notes, log_note
from libra_plan.planner.inputs.cluster import ClusterFlags
from libra_plan.planner.inputs.problem import PricedProblem, PriceSettings, read_problem
from libra_plan.planner.plan import Plan
from libra_plan.profiles.catalog import ProfilesFolder
from libra_plan.profiles.counting import counted
from libra_plan.profiles.document import shown
from libra_plan.profiles.plausibility import mixed_models
from libra_plan.profiles.schema import WorkloadFile
from libra_plan.profiles.switch_costs import STORE

if TYPE_CHECKING:
    from libra_plan.planner.launchers.manifest import Manifest

__all__ = ["price", "priced", "read_running", "set_aside_notes", "switch_cost_files"]


def price(
    source: str | Path | ProfilesFolder,
    *,
    gpus: int | None = None,
    gpus_per_node: int = 8,
    gpu_class: str | None = None,
    cluster: str | Path | Cluster | None = None,
    local: bool = False,
    policy: str = "throughput",
    budget: float | None = None,
    running: str | Path | Manifest | Plan | None = None,
    allow_prior: bool = False,
    ahead_steps: int | None = None,
    corrections: str | Path | None = None,
    switch_costs: str | Path | None = None,
    seed: int = 0,
    notes: Notes = log_note,
) -> PricedProblem:
    """Price every way to run every role of a workload on a cluster.

    Parameters
    ----------
    source
        A profiles folder: its path, the name of a shipped one, or one that `load` returned.
    gpus, gpus_per_node, gpu_class
        Equal GPUs in nodes of `gpus_per_node`; the class is needed when the profiles have several.
    cluster
        A cluster file, or a cluster. Without one, and without `gpus` and `local`, the folder's
        cluster.yaml counts.
    local
        Whether to plan for the GPUs of this machine.
    policy
        `throughput`, `max-min`, `priority` or `fair-share`.
    budget
        The most the GPUs may cost an hour.
    running
        The running plan: a manifest, its file or its folder, or a plan. Moving away from it costs.
    allow_prior
        Whether models may answer beyond what was measured.
    ahead_steps
        Price the step so many steps from now, with lengths forecast from `history_tokens`.
    corrections
        A file that `profile drift` wrote.
    switch_costs
        Recorded costs of moves. Default: those beside the running plan or the profiles.
    seed
        Seed of sampled lengths.
    notes
        A function that gets every note and warning. Default: they are logged.

    Returns
    -------
    PricedProblem
        One frozen table of prices, which `solve` takes as often as wanted.

    Raises
    ------
    InputError
        If a file, the cluster or an argument is wrong.

    Examples
    --------
    >>> import libra_plan as lp
    >>> problem = lp.price("profiles", gpus=8)
    >>> len(problem.tasks), len(problem.cluster.gpus)
    (3, 8)
    """
    return priced(
        source,
        PriceSettings(
            ClusterFlags(gpus, gpus_per_node, gpu_class, cluster, local),
            policy,
            budget,
            allow_prior,
            ahead_steps,
            seed,
        ),
        parent=read_running(running),
        corrections=corrections,
        switch_costs=switch_cost_files(switch_costs, running),
        notes=notes,
    )


def priced(
    source: str | Path | ProfilesFolder,
    settings: PriceSettings,
    *,
    parent: Manifest | None,
    corrections: str | Path | None,
    switch_costs: Sequence[Path],
    notes: Notes,
) -> PricedProblem:
    """Read and price a workload on a cluster, and note every assumption."""
    problem = read_problem(
        source, settings, parent=parent, corrections=corrections, switch_costs=switch_costs, notes=notes
    )
    for line in _remarks(problem, settings.ahead_steps):
        notes(line)
    return problem


def read_running(running: str | Path | Manifest | Plan | None) -> Manifest | None:
    """Return the manifest of the running plan, from a file, a folder that `solve` wrote, or a plan."""
    if isinstance(running, Plan):
        return running.to_manifest()
    if not isinstance(running, str | Path):
        return running
    from libra_plan.planner.launchers.document import read_manifest  # with a running plan only
    from libra_plan.planner.launchers.store import CURRENT

    path = Path(running)
    return read_manifest(path / CURRENT if path.is_dir() else path)


def switch_cost_files(named: str | Path | None, *beside: object) -> tuple[Path, ...]:
    """Return where recorded costs of moves may be: the named file, or files in the folders of these paths."""
    if named is not None:
        if not Path(named).exists():
            raise InputError("there are no recorded costs of moves", got=shown(Path(named)))
        return (Path(named),)
    paths = [Path(place) for place in beside if isinstance(place, str | Path)]
    return tuple((path if path.is_dir() else path.parent) / STORE for path in paths)


def _remarks(problem: PricedProblem, ahead_steps: int | None) -> Iterator[str]:
    """Yield notes on assumptions, and on requested settings that the workload does not provide for."""
    folder = problem.folder
    assert folder.workload is not None
    if ahead_steps is not None:
        yield from _without_history(folder.workload, ahead_steps)
    for line in mixed_models(folder.workload, folder.profiles):
        yield f"warning: {line}"
    if problem.policy.value == "fair-share" and not folder.workload.quotas:
        yield (
            "the workload states no `quotas`: --policy fair-share lets every task borrow whatever is idle, "
            "which plans as --policy throughput does"
        )
    yield from set_aside_notes(folder)
    if problem.cluster.name.endswith("-assumed"):
        node = problem.cluster.nodes[0]
        yield (
            f"assumed per GPU: {(node.cpu_cores or 0) / len(node.gpus):g} CPU cores and "
            f"{(node.host_memory_mib or 0) / len(node.gpus) / 1024:g} GiB of host memory "
            "(give --cluster to state them)"
        )


def _without_history(workload: WorkloadFile, ahead_steps: int) -> Iterator[str]:
    """Yield a note on tasks without a history of lengths to forecast from."""
    without = [task.id for task in workload.tasks if not task.work_per_step.history_tokens]
    if len(without) == len(workload.tasks):
        yield f"--ahead-steps {ahead_steps} changes nothing: no task states history_tokens"
    elif without:
        yield (
            f"--ahead-steps {ahead_steps}: lengths as stated, for want of history_tokens, for "
            f"{', '.join(without)}"
        )


def set_aside_notes(folder: ProfilesFolder) -> Iterator[str]:
    """Yield how many rows are set aside in each profile that the workload names."""
    roles = [role for task in (folder.workload.tasks if folder.workload else ()) for role in task.roles]
    for name in dict.fromkeys(name for role in roles for name in role.profiles):
        aside = len(folder.profiles[name].set_aside)
        if aside:
            verb = "is" if aside == 1 else "are"
            yield f"{counted(aside, 'row')} of {name} {verb} set aside; libra-plan validate says why"
