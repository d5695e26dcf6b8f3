"""The schema of manifests: closed, published, and with what the entries know of themselves."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import plans
import pytest

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.document import (
    manifest_to_json,
    manifest_to_yaml,
    read_manifest,
    seal,
)
from libra_plan.planner.launchers.manifest import manifest_schema

WRITERS = {".json": manifest_to_json, ".yaml": manifest_to_yaml}


def stored(folder, manifest, suffix=".json"):
    path = folder / f"manifest{suffix}"
    path.write_text(WRITERS[suffix](manifest), encoding="utf-8")
    return path


def test_the_schema_accepts_manifests_and_refuses_unknown_keys():
    """The schema is 2020-12 and closed: a typing error must not pass."""
    schema = manifest_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for case in plans.CASES.values():
        validator.validate(json.loads(manifest_to_json(case())))
    document = json.loads(manifest_to_json(plans.single_node()))
    document["spec"]["tasks"][0]["grace"] = 1
    with pytest.raises(jsonschema.ValidationError, match="grace"):
        validator.validate(document)


def test_ranks_and_gpus_of_a_task_are_in_rank_order_and_by_node():
    """Emitters take both from here, so a wrong order would start ranks on other GPUs than planned."""
    (task,) = [task for task in plans.two_nodes().spec.tasks if len(task.roles[0].members) > 1]
    role = task.roles[0]
    first, second = role.members
    assert role.ranks == tuple((member.node, gpu) for member in (first, second) for gpu in member.gpus)
    assert task.gpus == {f"{node}:{gpu}" for each in task.roles for node, gpu in each.ranks}
    assert task.gpus_on(first.node) == tuple(sorted(gpu for node, gpu in role.ranks if node == first.node))
    assert task.gpus_on("elsewhere") == ()


def test_nodes_of_a_task_come_in_the_order_of_the_inventory():
    """Launchers number nodes in this order."""
    spec = plans.two_nodes().spec
    for task in spec.tasks:
        held = {node for role in task.roles for node, _ in role.ranks}
        assert [node.id for node in spec.nodes_of(task)] == [n.id for n in spec.nodes if n.id in held]


def test_only_roles_that_train_hold_state():
    """What trains is asked for a checkpoint before it is stopped; a rollout is not."""
    roles = {role.kind: role.trains for role in plans.single_node().spec.tasks[0].roles}
    assert roles == {"actor_train": True, "rollout": False, "env": False}


def with_duals(manifest, duals):
    certificate = msgspec.structs.replace(manifest.spec.certificate, duals=duals)
    return seal(
        msgspec.structs.replace(
            manifest, spec=msgspec.structs.replace(manifest.spec, certificate=certificate)
        )
    )


def test_dual_prices_come_back_as_they_were_written(tmp_path):
    """Without them nobody can compute the bound again from the file."""
    duals = {"gpus of h200_sxm": 0.25, "hosts": 0.0}
    for suffix in WRITERS:
        path = stored(tmp_path, with_duals(plans.single_node(), duals), suffix)
        assert read_manifest(path).spec.certificate.duals == duals


def test_a_manifest_without_dual_prices_is_read(tmp_path):
    """Manifests that were written before stay valid, and say nothing about duals."""
    path = stored(tmp_path, plans.single_node())
    assert "duals" not in path.read_text(encoding="utf-8")
    assert read_manifest(path).spec.certificate.duals is msgspec.UNSET


def test_a_negative_dual_price_is_refused(tmp_path):
    """It would prove a bound that is too low."""
    path = stored(tmp_path, with_duals(plans.single_node(), {"gpus": -0.5}))
    with pytest.raises(ManifestError, match="duals"):
        read_manifest(path)
