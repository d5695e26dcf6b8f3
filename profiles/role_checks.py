"""Check one role of a workload against itself and the profiles it names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from libra_plan.profiles import wording
from libra_plan.profiles.place import Place
from libra_plan.profiles.schema import LayoutSpec, ModelShape, ProfileFile, RoleSpec

__all__ = ["PHASES", "check_profile_names", "check_role", "legal_tps", "same_model"]

PHASES: dict[str, tuple[str, ...]] = {
    "actor_train": ("train",),
    "critic_train": ("train",),
    "reward_train": ("train",),
    "rollout": ("decode", "serve", "score"),
    "reference": ("score",),
    "reward": ("score",),
    "critic_score": ("score",),
    "judge": ("score", "decode", "serve"),
}
LOW_DUTY = ("reward", "judge", "critic_score", "reference")
_GENERATES = ("decode", "serve")
_ENV_NEEDS = ("workers", "cpu_cores_per_worker", "host_memory_mib_per_worker")
_ENV_ONLY = (*_ENV_NEEDS, "tool_wait_s_per_turn", "tool_wait_sigma")
_GPU_ONLY = (
    *("profiles", "layouts", "micro_batch_tokens", "max_concurrency", "verdict_tokens", "mixed_layouts"),
    *("offload", "lora", "pinned_gpus", "excluded_gpus", "max_gpus"),
)
_OFFLOADS = {
    **dict.fromkeys(("actor_train", "critic_train", "reward_train"), ("optimizer", "parameters")),
    **dict.fromkeys(("reference", "reward", "critic_score"), ("parameters",)),
}
_LARGEST_TP = 64


def check_role(
    role: RoleSpec, place: Place, profiles: Mapping[str, ProfileFile] | None, longest_tokens: int
) -> None:
    """Refuse a role that contradicts itself or its profiles; `longest_tokens` of one whole sample.

    Every profile it names must be among `profiles` (`check_profile_names`).
    """
    if role.kind == "env":
        _check_env(role, place)
        return
    _check_kind(role, place)
    _check_gpu_limits(role, place)
    _check_micro_batch(role, place, longest_tokens)
    phases = wording.one_of(PHASES[role.kind])
    place.refuse_if(
        not role.profiles,
        f"role `{role.id}` names no profile",
        "profiles",
        way_out=f"list at least one of phase {phases}",
    )
    if profiles is not None:
        _check_profiles(role, place, [profiles[name] for name in role.profiles])


def check_profile_names(
    role: RoleSpec, place: Place, profiles: Collection[str], elsewhere: Collection[str]
) -> None:
    """Refuse a profile that was not found, and list what there is, here and elsewhere."""
    for position, name in enumerate(role.profiles):
        if name not in profiles:
            names = {*profiles, *elsewhere}
            place.refuse(
                f"no profile `{name}`",
                f"profiles[{position}]",
                allowed=wording.some_of(name, names),
                way_out=wording.did_you_mean(name, names) or "measure or import it first",
            )


def same_model(one: ModelShape, other: ModelShape) -> bool:
    """Whether two shapes are of one model: sources spell the name of one model in many ways."""
    return (one.layers, one.hidden, one.heads) == (other.layers, other.hidden, other.heads)


def legal_tps(model: ModelShape) -> tuple[int, ...]:
    """List the tensor-parallel degrees that a model's heads allow.

    Query heads divide by tp; KV heads divide by tp, or tp by the KV heads (they are then copied).
    """
    return tuple(
        tp
        for tp in range(1, min(_LARGEST_TP, model.heads) + 1)
        if model.heads % tp == 0 and (model.kv_heads % tp == 0 or tp % model.kv_heads == 0)
    )


def _check_env(role: RoleSpec, place: Place) -> None:
    for name in _GPU_ONLY:
        place.refuse_if(
            getattr(role, name) not in ((), None), f"`{name}` is for GPU roles", name, got="kind env"
        )
    for name in _ENV_NEEDS:
        place.refuse_if(
            getattr(role, name) is None,
            f"env role `{role.id}` does not state `{name}`",
            way_out="add it: CPU-only roles are placed by what their workers need",
        )
    place.refuse_if(
        role.tool_wait_sigma is not None and role.tool_wait_s_per_turn is None,
        "`tool_wait_sigma` spreads a wait that is not given",
        "tool_wait_sigma",
        got="no tool_wait_s_per_turn",
        way_out="state the mean wait of a turn, or leave the sigma out",
    )


def _check_kind(role: RoleSpec, place: Place) -> None:
    """Refuse keys that are for roles of another kind."""
    got = f"kind {role.kind}"
    for name in _ENV_ONLY:
        place.refuse_if(getattr(role, name) is not None, f"`{name}` is for env roles", name, got=got)
    verdicts = role.verdict_tokens is not None and role.kind != "judge"
    place.refuse_if(verdicts, "`verdict_tokens` is for judge roles", "verdict_tokens", got=got)
    place.refuse_if(
        role.mixed_layouts is not None and (role.kind != "rollout" or bool(role.pinned_gpus)),
        "`mixed_layouts` is for rollout roles without pinned GPUs",
        "mixed_layouts",
        got=got + (", pinned" if role.pinned_gpus else ""),
        way_out="drop it, or the pins",
    )
    place.refuse_if(
        role.lora is not None and role.kind != "rollout",
        "`lora` is for rollout roles",
        "lora",
        got=got,
        way_out="a train role says in its profile whether it trains adapters (`lora_rank`)",
    )
    place.refuse_if(
        role.shares_gpu and role.kind not in LOW_DUTY,
        "`shares_gpu` is for roles that work a small part of the time",
        "shares_gpu",
        got=got,
        allowed=wording.one_of(LOW_DUTY),
    )
    allowed = _OFFLOADS.get(role.kind, ())
    for part in role.offload:
        place.refuse_if(
            part not in allowed,
            f"a role of kind {role.kind} cannot offload its {part}",
            "offload",
            got=f"offload: [{', '.join(role.offload)}]",
            allowed=wording.one_of(allowed) if allowed else "no offload",
        )


def _check_gpu_limits(role: RoleSpec, place: Place) -> None:
    place.refuse_if(
        role.max_gpus is not None and role.min_gpus > role.max_gpus,
        "`min_gpus` is above `max_gpus`",
        "min_gpus",
        got=f"{role.min_gpus} > {role.max_gpus}",
    )
    both = wording.one_of(sorted(set(role.pinned_gpus) & set(role.excluded_gpus)))
    place.refuse_if(both != "nothing", "a GPU is both pinned and excluded", "excluded_gpus", got=both)
    for name in ("pinned_gpus", "excluded_gpus"):
        listed = getattr(role, name)
        repeated = sorted({gpu for gpu in listed if listed.count(gpu) > 1})
        place.refuse_if(bool(repeated), "a GPU is listed twice", name, got=wording.one_of(repeated))


def _check_micro_batch(role: RoleSpec, place: Place, longest_tokens: int) -> None:
    """Refuse a micro-batch too small for the longest sample, spread over context-parallel ranks."""
    if role.micro_batch_tokens is None:
        return
    cp = min((layout.cp for layout in role.layouts), default=1)
    place.refuse_if(
        role.micro_batch_tokens * cp < longest_tokens,
        "`micro_batch_tokens` is below the longest sample",
        "micro_batch_tokens",
        got=f"{role.micro_batch_tokens} tokens" + (f" × cp {cp}" if cp > 1 else ""),
        allowed=f"{-(-longest_tokens // cp)} or more",
        way_out="raise it, cut the lengths, or allow only layouts with more context parallelism",
    )


def _check_profiles(role: RoleSpec, place: Place, profiles: Sequence[ProfileFile]) -> None:
    suited, first = PHASES[role.kind], profiles[0].model
    for position, profile in enumerate(profiles):
        here = place.at(f"profiles[{position}]")
        here.refuse_if(
            profile.phase not in suited,
            f"a role of kind {role.kind} cannot use a profile of phase {profile.phase}",
            got=profile.id,
            allowed=f"phase {wording.one_of(suited)}",
        )
        for index, layout in enumerate(role.layouts):
            _check_layout(layout, place.at(f"layouts[{index}]"), profile.model)
        here.refuse_if(
            not same_model(profile.model, first),
            f"role `{role.id}` names profiles of different models",
            got=f"{profile.id} of {profile.model.id}, beside {profiles[0].id} of {first.id}",
            allowed="profiles of one model in one role",
            way_out="name the profiles of the model the role runs",
        )
    phases = f"phase {wording.one_of(dict.fromkeys(profile.phase for profile in profiles))}"
    generates = any(profile.phase in _GENERATES for profile in profiles)
    place.refuse_if(
        role.kind == "judge" and generates and role.verdict_tokens is None,
        f"judge `{role.id}` writes but does not state `verdict_tokens`",
        got=f"profiles of {phases}",
        way_out="state how long its verdicts are, or name a profile of phase score",
    )
    wanted = {"judge": role.verdict_tokens is not None, "rollout": True}
    place.refuse_if(
        wanted.get(role.kind, False) and not generates,
        f"judge `{role.id}` has verdicts but no profile that generates"
        if role.kind == "judge"
        else "a rollout role needs a profile that generates",
        "profiles",
        got=phases,
        allowed="phase decode or serve",
    )


def _check_layout(layout: LayoutSpec, place: Place, model: ModelShape) -> None:
    legal = legal_tps(model)
    place.refuse_if(
        layout.tp not in legal,
        f"{model.id} has {model.heads} heads and {model.kv_heads} KV heads, which tp does not divide",
        "tp",
        got=f"tp {layout.tp}",
        allowed=f"tp {wording.one_of(legal)}",
    )
    place.refuse_if(
        layout.pp > model.layers,
        f"{model.id} has fewer layers than pipeline stages",
        "pp",
        got=f"pp {layout.pp}",
        allowed=f"at most {model.layers}",
    )
    place.refuse_if(
        layout.ep > 1 and (model.experts or 1) % layout.ep != 0,
        f"{model.id} has {model.experts or 'no'} experts, which ep does not divide",
        "ep",
        got=f"ep {layout.ep}",
        allowed="1" if model.experts is None else "a divisor of the experts",
    )
