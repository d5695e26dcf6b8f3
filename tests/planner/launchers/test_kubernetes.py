"""Kubernetes objects are accepted by the strict schemas of the API server and of the CRDs."""

from __future__ import annotations

import re

import crd_schemas
import launch_cases
import plans
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.agents import agents_of
from libra_plan.planner.launchers.base import configured, find_emitter
from libra_plan.profiles.schema import LifecycleSpec

jsonschema = pytest.importorskip("jsonschema")

SCHEMAS = crd_schemas.load()
IMAGE = {"image": "registry.example/train:1"}
OPTIONS = (
    IMAGE,
    {**IMAGE, "dra": "true"},
    {**IMAGE, "queue": "gpus", "topology": "example.com/rack"},
    {**IMAGE, "queue": "gpus", "dra": "true", "namespace": "rl"},
)


def emit(manifest, **options):
    return configured(find_emitter("kubernetes"), {**IMAGE, **options}).emit(manifest)


def objects(files):
    return [one for text in files.values() for one in yaml.safe_load_all(text)]


def check(one):
    """Validate one object against a CRD or, for what is built in, against the API's own schema."""
    schema = SCHEMAS.get(f"{one['apiVersion']}/{one['kind']}")
    if schema is not None:
        jsonschema.Draft202012Validator(schema).validate(one)
        return
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for version in ("1.34", "1.37"):
        validate.validate(one, version, strict=True)


def accepted():
    for options in OPTIONS:
        for case, make in launch_cases.TEN.items():
            try:
                yield case, emit(make(), **options)
            except ManifestError as refused:
                assert refused.got  # noqa: PT017  # what is refused is in the golden table


def test_all_objects_are_valid():
    """An unknown field would be dropped by the API server, and the plan with it."""
    kinds = set()
    for _, files in accepted():
        for one in objects(files):
            check(one)
            kinds.add(one["kind"])
    assert kinds >= {
        "JobSet",
        "ResourceClaimTemplate",
        "Topology",
        "ResourceFlavor",
        "ClusterQueue",
        "LocalQueue",
    }


def test_a_wrong_field_is_found():
    """Validation that lets everything through would be worth nothing."""
    jobset = next(one for one in objects(emit(launch_cases.whole_nodes())) if one["kind"] == "JobSet")
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["terminationGracePeriod"] = 5
    with pytest.raises(jsonschema.ValidationError):
        check(jobset)


def test_pod_templates_are_valid_pods():
    """The CRD's copy of the pod's schema may lag behind the API's own."""
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    files = emit(launch_cases.ahead(), dra="true")
    jobset = next(one for one in objects(files) if one["kind"] == "JobSet")
    for job in jobset["spec"]["replicatedJobs"]:
        template = job["template"]["spec"]["template"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}
        validate.validate(pod, "1.34", strict=True)
        batch = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "x"},
            "spec": job["template"]["spec"],
        }
        validate.validate(batch, "1.34", strict=True)


def test_claims_name_every_planned_gpu_once():
    """A claim by UUID is the only way to say which GPU."""
    manifest = launch_cases.gaps()
    claims = [one for one in objects(emit(manifest, dra="true")) if one["kind"] == "ResourceClaimTemplate"]
    found = []
    for claim in claims:
        request = claim["spec"]["spec"]["devices"]["requests"][0]["exactly"]
        uuids = re.findall(r"GPU-[a-z0-9-]+", request["selectors"][0]["cel"]["expression"])
        assert request["count"] == len(uuids)
        found += uuids
    assert sorted(found) == sorted(f"GPU-n0-{index}" for index in (0, 1, 2, 3, 5, 7))


def test_gpus_are_counted_from_zero_inside_a_container():
    """A container sees only its own GPUs, whatever their numbers on the host."""
    jobset = next(one for one in objects(emit(launch_cases.gaps(), dra="true")) if one["kind"] == "JobSet")
    for job in jobset["spec"]["replicatedJobs"]:
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        shown = {one["name"]: one["value"] for one in container["env"]}["CUDA_VISIBLE_DEVICES"]
        assert shown == ",".join(map(str, range(len(shown.split(",")))))


def test_ranks_meet_at_a_name_that_jobset_makes():
    """Host addresses mean nothing inside pods."""
    jobset = next(one for one in objects(emit(launch_cases.whole_nodes())) if one["kind"] == "JobSet")
    names = {
        f"{jobset['metadata']['name']}-{job['name']}-0-0.{jobset['spec']['network']['subdomain']}"
        for job in jobset["spec"]["replicatedJobs"]
    }
    for job in jobset["spec"]["replicatedJobs"][:2]:
        command = job["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
        assert command[command.index("--master-addr") + 1] in names


def test_the_pod_outlives_the_grace_of_torchrun():
    """A pod killed before its ranks have saved loses work."""
    manifest = plans.manifest_of(
        plans.cluster(1),
        plans.running("t", [plans.role("a", [["n0:0"]])]),
        lifecycle=LifecycleSpec(grace_s=600.0),
    )
    (jobset,) = objects(emit(manifest))
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    assert int(command[command.index("--shutdown-timeout") + 1]) == 600
    assert pod["terminationGracePeriodSeconds"] > 600


def test_parts_of_nodes_and_other_signals_are_refused():
    """The device plugin chooses among a node's GPUs; the kubelet knows one signal."""
    with pytest.raises(ManifestError, match="takes numbers, not ids"):
        emit(launch_cases.ahead())
    task = plans.running("t", [plans.role("a", [["n0:0"]])])
    with pytest.raises(ManifestError, match="stop_signal is SIGUSR1; Kubernetes sends SIGTERM"):
        emit(plans.manifest_of(plans.cluster(1), task, lifecycle=LifecycleSpec(stop_signal="SIGUSR1")))
    with pytest.raises(ManifestError, match="no image"):
        find_emitter("kubernetes").emit(plans.manifest_of(plans.cluster(1), task))


NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,60}[A-Za-z0-9])?", fullmatch=True)


@settings(max_examples=40, deadline=None)
@given(task=NAMES, one=NAMES, other=NAMES)
def test_any_name_gives_valid_and_different_objects(task, one, other):
    """Names of tasks may be longer and richer than DNS labels."""
    if one == other:
        other += "0" if len(other) < 63 else ""
    if one == other:
        return
    roles = [plans.role(one, [["n0:0"]])], [plans.role(other, [["n1:0"]])]
    (jobset,) = objects(emit(plans.manifest_of(plans.cluster(1, 1), plans.running(task, *roles))))
    names = [job["name"] for job in jobset["spec"]["replicatedJobs"]]
    assert len(set(names)) == len(names)
    for name in names:
        pod = f"{jobset['metadata']['name']}-{name}-0-0"
        assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", pod)
        assert len(pod) <= 63
    assert jobset["metadata"]["labels"]["libra-plan.dev/task"] == task
    check(jobset)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12) | st.sampled_from(
    ["$(POD_IP)", "$$(A)", "$", "$(", "a: b", "- x", "1e3"]
)


def expanded(text, known):
    """Do what the kubelet does with `$(NAME)` and `$$`."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)",
        lambda found: "$" if found[0] == "$$" else known.get(found[1], found[0]),
        text,
    )


@settings(max_examples=60, deadline=None)
@given(words=st.lists(WORDS, min_size=1, max_size=4), folder=WORDS)
def test_hostile_words_reach_the_container_unchanged(words, folder):
    """Kubernetes reads $(NAME) in commands and values."""
    manifest = plans.manifest_of(
        plans.cluster(1),
        plans.running("t", [plans.role("a", [["n0:0"]])]),
        command=("train.py", *words),
        lifecycle=LifecycleSpec(checkpoint_dir=folder),
    )
    (jobset,) = objects(emit(manifest, shutdown_timeout="false"))
    (container,) = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
    known = {"POD_IP": "10.1.1.1", "A": "gone"}
    (agent,) = agents_of(manifest)
    assert [expanded(word, known) for word in container["command"]] == list(agent.argv)
    values = {one["name"]: expanded(one["value"], known) for one in container["env"]}
    assert values["LIBRA_PLAN_CHECKPOINT_DIR"] == folder
