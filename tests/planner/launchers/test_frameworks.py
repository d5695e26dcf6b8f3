"""What is emitted for RL frameworks holds only keys they have, and adds up to the plan."""

from __future__ import annotations

import importlib.util
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import golden
import launch_cases
import plans
import pytest
import shells
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from libra_plan.errors import ManifestError
from libra_plan.planner.launchers.base import configured, find_emitter
from libra_plan.planner.launchers.role_mapping import map_roles
from libra_plan.planner.plan import MemoryMode
from libra_plan.profiles.schema import LifecycleSpec

RECORDED = Path(__file__).parents[2] / "data" / "launchers"
FRAMEWORKS = ("verl", "slime", "openrlhf", "rlinf", "roll", "areal", "nemo-rl", "skyrl", "prime-rl")
OVERRIDES = {"verl": "verl_keys", "areal": "areal_keys", "nemo-rl": "nemo_rl_keys", "skyrl": "skyrl_keys"}
FLAGS = {
    ("slime", ""): "slime_flags",
    ("openrlhf", "0.10.1"): "openrlhf_0.10.1",
    ("openrlhf", "0.10.2"): "openrlhf_0.10.2",
    ("openrlhf", "0.11.2"): "openrlhf_0.11.2",
}
MEGATRON = {"engine": "megatron"}


def emit(name, manifest, **options):
    return configured(find_emitter(name), options).emit(manifest)


def recorded(name):
    return {line.split()[0] for line in (RECORDED / f"{name}.txt").read_text().splitlines()}


def arguments(files, task, name):
    """Read the words that a driver adds to the user's command."""
    text = files[f"{task}/{name}.sh"].replace(" \\\n", " ").splitlines()[-1]
    words = shlex.split(text)
    return words[words.index("$@") + 1 :]


def values(files, task, name):
    return dict(word.lstrip("-").partition("=")[::2] for word in arguments(files, task, name))


def emitted(name, **options):
    """Emit all of the ten manifests that can be said."""
    for make in launch_cases.TEN.values():
        manifest = make()
        try:
            files = emit(name, manifest, **options)
        except ManifestError:
            continue  # what is refused is in the golden table
        for task in manifest.spec.tasks:
            yield files, task


@pytest.mark.parametrize("name", OVERRIDES)
@pytest.mark.parametrize("engine", ["", "megatron"])
def test_every_override_is_a_key_of_the_framework(name, engine):
    """NeMo-RL takes unknown keys in silence, and the others stop only when the job has its GPUs."""
    known = recorded(OVERRIDES[name]) | {"model_engine"}
    seen = 0
    for files, task in emitted(name, **({"engine": engine} if engine else {})):
        keys = {word.partition("=")[0] for word in arguments(files, task.id, name)}
        assert keys <= known, keys - known
        seen += 1
    assert seen >= 4


@pytest.mark.parametrize(("name", "version"), FLAGS)
def test_every_flag_is_one_of_the_framework(name, version):
    """OpenRLHF changed the spelling of all of its flags from one patch release to the next."""
    known = recorded(FLAGS[name, version])
    seen = 0
    for files, task in emitted(name, **({"version": version} if version else {})):
        flags = {word.partition("=")[0] for word in arguments(files, task.id, name)}
        assert flags <= known, flags - known
        seen += 1
    assert seen >= 3


def test_prime_rl_tables_hold_known_keys_and_both_orders():
    """Inference takes the first GPUs that are visible, the trainer the next."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no TOML reader")
    known = recorded("prime_rl_keys")
    for files, task in emitted("prime-rl"):
        tables = tomllib.loads(files[f"{task.id}/placement.toml"])
        assert set(leaves(tables)) <= known
    script = emit("prime-rl", launch_cases.gaps())["first/prime-rl.sh"]
    assert "export CUDA_VISIBLE_DEVICES=0,2,5,7\n" in script  # rollout on 0 and 2, actor on 5 and 7
    wide = tomllib.loads(emit("prime-rl", launch_cases.whole_nodes())["wide/placement.toml"])
    assert wide["slurm"]["nodelist"] == "n2,n0,n1"
    assert wide["deployment"]["num_train_nodes"] == 2


def leaves(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


@pytest.mark.parametrize("engine", ["fsdp", "megatron"])
def test_verl_composes_what_it_is_given(engine):
    """Hydra with verl's own configuration is the judge of keys and of their syntax."""
    hydra = pytest.importorskip("hydra", reason="Hydra is not installed")
    found = importlib.util.find_spec("verl")
    if found is None or found.origin is None:
        pytest.skip("verl is not installed (pip install --no-deps verl)")
    folder = str(Path(found.origin).parent / "trainer" / "config")
    with hydra.initialize_config_dir(folder, version_base=None):
        for files, task in emitted("verl", engine=engine):
            words = arguments(files, task.id, "verl")
            config = hydra.compose("ppo_trainer", overrides=words)
            roles = map_roles(task, "verl", [])
            pool = config.trainer.nnodes * config.trainer.n_gpus_per_node
            assert pool == sum(len(member.gpus) for member in roles.actor.role.members)
            if task.lifecycle.checkpoint_dir is not None:
                assert config.trainer.default_local_dir == task.lifecycle.checkpoint_dir


def test_verl_modes_follow_pools_and_coupling():
    """A standalone rollout is a mode of its own, and must not have replicas on the actor's GPUs too."""
    together = values(emit("verl", launch_cases.shared_all()), "grpo", "verl")
    assert together["trainer.v1.trainer_mode"] == "sync"
    assert together["actor_rollout_ref.rollout.free_cache_engine"] == "true"
    apart = values(emit("verl", launch_cases.ahead()), "ahead", "verl")
    assert apart["trainer.v1.trainer_mode"] == "separate_async"
    assert apart["actor_rollout_ref.hybrid_engine"] == "false"
    assert apart["trainer.v1.sampler.max_off_policy_threshold"] == "2"
    reward = values(emit("verl", launch_cases.ppo()), "ppo", "verl")
    assert reward["reward.reward_model.enable_resource_pool"] == "true"
    assert reward["reward.reward_model.n_gpus_per_node"] == "4"


def test_the_topology_block_of_verl_adds_up():
    """A088: one could not tell from a configuration which model runs on which GPUs."""
    for files, task in emitted("verl"):
        block = yaml.safe_load(files[f"{task.id}/topology.yaml"])["topology"]
        pools = {pool["name"]: pool["nnodes"] * pool["n_gpus_per_node"] for pool in block["device_pools"]}
        gpus = {gpu for role in task.roles for replica in role.replicas for gpu in replica}
        (cluster,) = block["clusters"]
        assert cluster["nnodes"] * cluster["n_gpus_per_node"] == len(gpus) == sum(pools.values())
        sizes = {role.id: sum(len(member.gpus) for member in role.members) for role in task.roles}
        assert {model["name"]: pools[model["resource_pool"]] for model in block["models"]} == {
            name: size for name, size in sizes.items() if size
        }


def test_verl_has_three_cpus_for_every_gpu():
    """With fewer its placement group waits for ever, without a word."""
    text = emit("verl", launch_cases.shared_all())["grpo/ray/n0.sh"]
    words = shlex.split(text.splitlines()[-1])
    assert int(words[words.index("--num-cpus") + 1]) >= 3 * 8


def test_sizes_that_do_not_divide_are_refused_where_frameworks_do_not_look():
    """With verl a job starts with tensor parallel 3 on 8 GPUs, and two of them stand idle."""
    everyone = [[gpu] for gpu in plans.span("n0", 0, 8)]
    threes = [plans.span("n0", 0, 3), plans.span("n0", 3, 3)]
    task = plans.running("t", [plans.role("actor", everyone), plans.role("rollout", threes, tp=3)])
    for name in ("verl", "openrlhf", "slime", "skyrl", "nemo-rl", "areal", "rlinf"):
        with pytest.raises(ManifestError):
            emit(name, plans.manifest_of(plans.cluster(8), task))


def test_engines_that_straddle_nodes_unevenly_are_refused():
    """A010: one engine over two nodes ran at a quarter of the speed."""
    replicas = [
        [*plans.span("n0", 0, 3), *plans.span("n1", 0, 1)],
        [*plans.span("n1", 1, 2), *plans.span("n0", 3, 2)],
    ]
    role = plans.role("rollout", replicas, tp=4)
    manifest = plans.manifest_of(plans.cluster(5, 3), plans.running("t", [role]), coupling=launch_cases.ASYNC)
    reasons = []
    assert map_roles(manifest.spec.tasks[0], "verl", reasons) is None
    assert any("t/rollout" in reason for reason in reasons)


def test_slime_orders_nodes_by_address_as_numbers():
    """10.0.0.10 comes after 10.0.0.9, whatever the alphabet says."""
    nodes = (plans.node("n0", 2, "10.0.0.9"), plans.node("n1", 2, "10.0.0.10"))
    task = plans.running(
        "t",
        [plans.role("actor", [["n0:0"], ["n0:1"]])],
        [plans.role("rollout", [["n1:0", "n1:1"]], tp=2)],
    )
    files = emit("slime", plans.manifest_of(plans.Cluster("lab", nodes), task))
    assert values(files, "t", "slime")["rollout-num-gpus-per-engine"] == "2"
    turned = (plans.node("n0", 2, "10.0.0.10"), plans.node("n1", 2, "10.0.0.9"))
    with pytest.raises(ManifestError, match="slime trains on the lowest GPUs"):
        emit("slime", plans.manifest_of(plans.Cluster("lab", turned), task))


def test_slime_engine_groups_hold_all_of_the_rollout():
    """A001, A006: GPUs per node are said, never left at 8, and groups add up."""
    for files, task in emitted("slime"):
        (engine,) = yaml.safe_load(files[f"{task.id}/sglang.yaml"])["sglang"]
        given = values(files, task.id, "slime")
        assert sum(group["num_gpus"] for group in engine["server_groups"]) == int(given["rollout-num-gpus"])
        assert "num-gpus-per-node" in given


@pytest.mark.parametrize("launcher", ["slime", "openrlhf"])
def test_what_rolls_out_in_batches_takes_no_plan_for_a_stream(launcher):
    """A stream does not wait for its longest sample; these do, and would be slower than planned."""
    streams = launch_cases.ahead(replace(launch_cases.ASYNC, batches=False))
    with pytest.raises(ManifestError, match=r"plan it with coupling\.rollouts batches"):
        emit(launcher, streams)
    emit("areal", streams)


def test_openrlhf_starts_no_model_that_is_not_planned():
    """Its reference would otherwise stand on 8 GPUs per node by default."""
    apart = values(emit("openrlhf", launch_cases.ahead()), "ahead", "openrlhf")
    assert apart["algo.kl.init_coef"] == "0"
    assert "train.async_enable" in apart
    together = values(emit("openrlhf", launch_cases.shared_all()), "grpo", "openrlhf")
    assert "train.colocate_all" in together
    engines = int(together["vllm.num_engines"]) * int(together["vllm.tensor_parallel_size"])
    assert engines == int(together["actor.num_nodes"]) * int(together["actor.num_gpus_per_node"])


def test_rlinf_spans_are_the_plan():
    """RLinf takes numbers of GPUs that it counts itself."""
    document = yaml.safe_load(emit("rlinf", launch_cases.whole_nodes())["wide/rlinf.yaml"])
    assert document["cluster"] == {
        "num_nodes": 3,
        "component_placement": {"actor": "0-15", "rollout": "16-23", "reward": "0-15"},
    }
    parse = pytest.importorskip(
        "rlinf.scheduler.cluster.utils", reason="RLinf is not installed"
    ).parse_rank_config
    assert parse("16-23", list(range(24))) == list(range(16, 24))


def test_rlinf_refuses_gaps_and_half_shared_sets():
    """Its own assertions would end the run after the model is loaded."""
    task = plans.running(
        "t", [plans.role("actor", [["n0:0"], ["n0:2"]])], [plans.role("rollout", [["n0:1"]])]
    )
    with pytest.raises(ManifestError, match="contiguous"):
        emit("rlinf", plans.manifest_of(plans.cluster(4), task))
    with pytest.raises(ManifestError, match="all components or none"):
        emit("rlinf", plans.colocated())


def test_roll_maps_literal_lists_of_whole_nodes():
    """ROLL evaluates the text as Python."""
    document = yaml.safe_load(emit("roll", launch_cases.whole_nodes())["wide/roll.yaml"])
    assert document["num_gpus_per_node"] == 8
    assert re.fullmatch(r"\[[0-9, ]+\]", document["actor_infer"]["device_mapping"])
    assert document["actor_infer"]["device_mapping"] == str(list(range(16, 24)))
    assert len(range(16, 24)) % document["actor_infer"]["num_gpus_per_worker"] == 0
    with pytest.raises(ManifestError, match="whole nodes"):
        emit("roll", launch_cases.gaps())


def test_areal_dimensions_multiply_to_the_world():
    """The product of data, tensor, pipeline and context parallel degrees is the number of GPUs."""
    for files, task in emitted("areal"):
        given = values(files, task.id, "areal")
        for name, role in (("actor", "actor"), ("rollout", "rollout")):
            spec = given[f"{name}.backend"].strip("'").partition(":")[2]
            product = math.prod(
                int(count) for kind, count in re.findall(r"([a-z])([0-9]+)", spec) if kind != "e"
            )
            entry = next(one for one in task.roles if one.id == role)
            assert product == sum(len(member.gpus) for member in entry.members)


def test_a_resident_plan_is_not_said_to_frameworks_that_offload():
    """They would free memory that the plan keeps, and pay for it at every step."""
    everyone = [[gpu] for gpu in plans.span("n0", 0, 4)]
    roles = [plans.role("actor", everyone), plans.role("rollout", everyone)]
    manifest = plans.manifest_of(plans.cluster(4), plans.running("t", roles, memory_mode=MemoryMode.RESIDENT))
    for name in ("slime", "areal"):
        with pytest.raises(ManifestError, match="keeps it resident"):
            emit(name, manifest)
    assert (
        values(emit("verl", manifest), "t", "verl")["actor_rollout_ref.rollout.free_cache_engine"] == "false"
    )


def test_a_judge_and_commands_of_environments_have_no_part():
    """Left out in silence, they would not run."""
    for name in FRAMEWORKS:
        with pytest.raises(ManifestError) as caught:
            emit(name, launch_cases.judged())
        assert "judged/judge: no part for a judge" in caught.value.got
        assert "judged/env" in caught.value.got


def test_a_critic_that_scores_is_the_one_that_trains():
    """Frameworks have one critic, in one place."""
    four = [[gpu] for gpu in plans.span("n0", 0, 4)]
    roles = [plans.role(name, four) for name in ("actor", "rollout", "critic", "values")]
    where = plans.cluster(8)
    good = plans.manifest_of(where, plans.running("t", roles, memory_mode=MemoryMode.SLEEP))
    assert "critic.ulysses_sequence_parallel_size" in values(emit("verl", good), "t", "verl")
    other = [*roles[:3], plans.role("values", [["n0:0"]])]
    with pytest.raises(ManifestError, match="one critic both scores and trains"):
        emit("verl", plans.manifest_of(where, plans.running("t", other, memory_mode=MemoryMode.SLEEP)))
    alone = [*roles[:2], roles[3]]
    with pytest.raises(ManifestError, match="none that trains"):
        emit("verl", plans.manifest_of(where, plans.running("t", alone, memory_mode=MemoryMode.SLEEP)))


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=10)


@pytest.mark.parametrize("name", FRAMEWORKS)
@settings(max_examples=8, deadline=None)
@given(words=st.lists(WORDS, max_size=3), folder=WORDS)
def test_hostile_words_stay_words(name, words, folder, tmp_path_factory):
    """The user's words come first and unchanged, the placement after them as it is for plain words."""
    place = tmp_path_factory.mktemp("rl")

    def make(command, checkpoint_dir):
        task = plans.running(
            "t",
            [plans.role("actor", [["n0:0"], ["n0:1"]])],
            [plans.role("rollout", [["n0:2", "n0:3"]], tp=2)],
        )
        lifecycle = LifecycleSpec(checkpoint_dir=checkpoint_dir)
        return plans.manifest_of(
            plans.cluster(4), task, command=command, lifecycle=lifecycle, coupling=launch_cases.ASYNC
        )

    files = emit(name, make(("run", *words), folder))
    shells.write(place, files)
    argv, environment = shells.recorded(place, f"t/{name}.sh", ("python3", "run"))
    plain = arguments(emit(name, make(("run",), "/plain")), "t", name) if name != "prime-rl" else []
    assert argv[: len(words)] == words
    added = argv[len(words) :]
    assert [word.partition("=")[0] for word in added] == [word.partition("=")[0] for word in plain]
    assert environment["LIBRA_PLAN_CHECKPOINT_DIR"] == folder
    if name in ("openrlhf", "slime"):
        assert [word for word in added if word.endswith(f"={folder}")]
    assert {path.name for path in place.iterdir()} == {"t", "tools", "record.env", "record.argv"}


def test_golden_cases_are_emitted_for_every_framework():
    """Golden files of refusals alone would test nothing."""
    for name in FRAMEWORKS:
        assert any(
            "refused.txt" not in golden.outcome(find_emitter(name), launch_cases.TEN[case]())
            for case in golden.CASES
        )
