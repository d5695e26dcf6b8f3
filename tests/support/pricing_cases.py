"""A small workload with affine profiles, for tests of pricing."""

from pathlib import Path

from affine_profile import AffineProfile, profile_file

from libra_plan.models.clusters import uniform_cluster
from libra_plan.models.fits import fit_name, joined_profiles
from libra_plan.planner.pricing import price_workload
from libra_plan.profiles.catalog import LoadedProfile, ProfilesFolder
from libra_plan.profiles.schema import (
    Fixed,
    LogNormal,
    MeasuredSpread,
    Point,
    RoleSpec,
    SwitchingFile,
    TaskSpec,
    WorkloadFile,
    WorkSpec,
)

POINTS = tuple(
    Point(batch_sequences=batch, seq_len_tokens=length, time_s=1.0)
    for batch, length in ((1, 512), (32, 512), (4, 8192), (1, 32768))
)
ROLLOUT = RoleSpec(id="rollout", kind="rollout", profiles=("h200-sxm-decode", "h200-sxm-score"))
REFERENCE = RoleSpec(id="reference", kind="reference", profiles=("h200-sxm-score",))
ACTOR = RoleSpec(id="actor", kind="actor_train", profiles=("h200-sxm-train",))
WORK = WorkSpec(
    samples=64,
    prompt_tokens=Fixed(tokens=1024),
    response_tokens=LogNormal(median_tokens=1000, sigma=1.0, max_tokens=16_000),
)
H200 = uniform_cluster(8, "h200_sxm", 143_155.9)


def spread(value):
    return MeasuredSpread(typical=value, low=value, high=value, p90=value, n=3)


SWITCHING = SwitchingFile(
    schema_version=1,
    gpu_class="h200_sxm",
    start_s=spread(8.0),
    save_gib_per_s=spread(0.75),
    load_gib_per_s=spread(4.0),
    pinned_host_gib_per_s=spread(51.0),
    kind="measured",
)


def task_of(*roles, **changes):
    fields = {"id": "t", "work_per_step": WORK, "roles": roles or (ROLLOUT, REFERENCE, ACTOR), **changes}
    return TaskSpec(**fields)


def folder_of(*tasks, files=None, points=POINTS, switching=True, path=Path()):
    files = files or [profile_file(phase) for phase in ("decode", "score", "train")]
    return ProfilesFolder(
        path,
        WorkloadFile(schema_version=1, tasks=tasks or (task_of(),)),
        None,
        {file.id: LoadedProfile(file, points, path) for file in files},
        {"h200_sxm": SWITCHING} if switching else {},
        {"workload.yaml": "ab" * 32},
    )


def price_of(*tasks, cluster=H200, fields=None, **folder_fields):
    """Price with affine profiles; `fields` sets their coefficients."""
    folder = folder_of(*tasks, **folder_fields)
    return price_workload(folder, cluster, fits=affine_fits(folder, **(fields or {})))


def affine_fits(folder, **fields):
    """Answer for every profile with an affine law."""
    return fits_with(folder, lambda loaded: AffineProfile(loaded.file, **fields))


def fits_with(folder, fit):
    """Fit what the workload names by `fit`, as `fit_folder` does by the points."""
    return {fit_name(each): fit(each) for each in joined_profiles(folder)}


def role_of(problem, name="rollout"):
    return next(role for role in problem.tasks[0].roles if role.id == name)
