"""Check one role of a workload against itself and the profiles it names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from libra_plan.errors import WorkloadError
from libra_plan.profiles import wording
from libra_plan.profiles.document import Document
from libra_plan.profiles.model_checks import check_one_model
from libra_plan.profiles.schema import LayoutSpec, ModelShape, ProfileFile, RoleSpec

__all__ = ["PHASES", "check", "legal_tps", "require_known", "unique"]

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
    "profiles",
    "layouts",
    "micro_batch_tokens",
    "max_concurrency",
    "verdict_tokens",
    "mixed_layouts",
    "offload",
    "lora",
    "pinned_gpus",
    "excluded_gpus",
    "max_gpus",
)
_OFFLOADS = {
    **dict.fromkeys(("actor_train", "critic_train", "reward_train"), ("optimizer", "parameters")),
    **dict.fromkeys(("reference", "reward", "critic_score"), ("parameters",)),
}
_LARGEST_TP = 64


def unique(ids: Sequence[str], key: str, noun: str, document: Document) -> None:
    """Refuse two tasks or two roles with one id."""
    first: dict[str, int] = {}
    for position, name in enumerate(ids):
        if first.setdefault(name, position) != position:
            other = document.where(f"{key}[{first[name]}].id").line
            raise WorkloadError(
                f"two {noun}s have the id `{name}`",
                got=f"the other on line {other}",
                way_out=f"give each {noun} its own id",
                where=document.where(f"{key}[{position}].id"),
            )


def check(
    role: RoleSpec,
    key: str,
    document: Document,
    profiles: Mapping[str, ProfileFile] | None,
    longest_tokens: int,
) -> None:
    """Refuse a role that contradicts itself or its profiles; `longest_tokens` of one whole sample.

    Every profile it names must be among `profiles` (`require_known`).
    """
    if role.kind == "env":
        _check_env(role, key, document)
        return
    for name in _ENV_ONLY:
        if getattr(role, name) is not None:
            raise WorkloadError(
                f"`{name}` is for env roles", got=f"kind {role.kind}", where=document.where(f"{key}.{name}")
            )
    if role.verdict_tokens is not None and role.kind != "judge":
        where = document.where(f"{key}.verdict_tokens")
        raise WorkloadError("`verdict_tokens` is for judge roles", got=f"kind {role.kind}", where=where)
    if role.mixed_layouts is not None and (role.kind != "rollout" or role.pinned_gpus):
        raise WorkloadError(
            "`mixed_layouts` is for rollout roles without pinned GPUs",
            got=f"kind {role.kind}" + (", pinned" if role.pinned_gpus else ""),
            way_out="drop it, or the pins",
            where=document.where(f"{key}.mixed_layouts"),
        )
    _check_adapter(role, key, document)
    if role.shares_gpu and role.kind not in LOW_DUTY:
        raise WorkloadError(
            "`shares_gpu` is for roles that work a small part of the time",
            got=f"kind {role.kind}",
            allowed=wording.one_of(LOW_DUTY),
            where=document.where(f"{key}.shares_gpu"),
        )
    _check_offload(role, key, document)
    _check_gpu_limits(role, key, document)
    _check_budget(role, key, document, longest_tokens)
    if not role.profiles:
        raise WorkloadError(
            f"role `{role.id}` names no profile",
            way_out=f"list at least one of phase {wording.one_of(PHASES[role.kind])}",
            where=document.where(f"{key}.profiles"),
        )
    if profiles is not None:
        _check_profiles(role, key, document, profiles)


def _check_adapter(role: RoleSpec, key: str, document: Document) -> None:
    if role.lora is not None and role.kind != "rollout":
        raise WorkloadError(
            "`lora` is for rollout roles",
            got=f"kind {role.kind}",
            way_out="a train role says in its profile whether it trains adapters (`lora_rank`)",
            where=document.where(f"{key}.lora"),
        )


def require_known(
    role: RoleSpec, key: str, document: Document, profiles: Collection[str], elsewhere: Collection[str]
) -> None:
    """Refuse a profile that was not found, and list what there is, here and elsewhere."""
    for position, name in enumerate(role.profiles):
        if name not in profiles:
            names = {*profiles, *elsewhere}
            raise WorkloadError(
                f"no profile `{name}`",
                allowed=wording.some_of(name, names),
                way_out=wording.did_you_mean(name, names) or "measure or import it first",
                where=document.where(f"{key}.profiles[{position}]"),
            )


def _check_env(role: RoleSpec, key: str, document: Document) -> None:
    for name in _GPU_ONLY:
        if getattr(role, name) not in ((), None):
            raise WorkloadError(
                f"`{name}` is for GPU roles", got="kind env", where=document.where(f"{key}.{name}")
            )
    for name in _ENV_NEEDS:
        if getattr(role, name) is None:
            raise WorkloadError(
                f"env role `{role.id}` does not state `{name}`",
                way_out="add it: CPU-only roles are placed by what their workers need",
                where=document.where(key),
            )
    if role.tool_wait_sigma is not None and role.tool_wait_s_per_turn is None:
        raise WorkloadError(
            "`tool_wait_sigma` spreads a wait that is not given",
            got="no tool_wait_s_per_turn",
            way_out="state the mean wait of a turn, or leave the sigma out",
            where=document.where(f"{key}.tool_wait_sigma"),
        )


def _check_offload(role: RoleSpec, key: str, document: Document) -> None:
    allowed = _OFFLOADS.get(role.kind, ())
    for part in role.offload:
        if part not in allowed:
            raise WorkloadError(
                f"a {role.kind} role cannot offload its {part}",
                got=f"offload: [{', '.join(role.offload)}]",
                allowed=wording.one_of(allowed) if allowed else "no offload",
                where=document.where(f"{key}.offload"),
            )


def _check_gpu_limits(role: RoleSpec, key: str, document: Document) -> None:
    if role.max_gpus is not None and role.min_gpus > role.max_gpus:
        raise WorkloadError(
            "`min_gpus` is above `max_gpus`",
            got=f"{role.min_gpus} > {role.max_gpus}",
            where=document.where(f"{key}.min_gpus"),
        )
    both = set(role.pinned_gpus) & set(role.excluded_gpus)
    if both:
        raise WorkloadError(
            "a GPU is both pinned and excluded",
            got=wording.one_of(sorted(both)),
            where=document.where(f"{key}.excluded_gpus"),
        )
    for name in ("pinned_gpus", "excluded_gpus"):
        listed = getattr(role, name)
        repeated = sorted({gpu for gpu in listed if listed.count(gpu) > 1})
        if repeated:
            where = document.where(f"{key}.{name}")
            raise WorkloadError("a GPU is listed twice", got=wording.one_of(repeated), where=where)


def _check_budget(role: RoleSpec, key: str, document: Document, longest_tokens: int) -> None:
    """Refuse a micro-batch too small for the longest sample, spread over context-parallel ranks."""
    if role.micro_batch_tokens is None:
        return
    cp = min((layout.cp for layout in role.layouts), default=1)
    if role.micro_batch_tokens * cp < longest_tokens:
        raise WorkloadError(
            "`micro_batch_tokens` is below the longest sample",
            got=f"{role.micro_batch_tokens} tokens" + (f" × cp {cp}" if cp > 1 else ""),
            allowed=f"{-(-longest_tokens // cp)} or more",
            way_out="raise it, cut the lengths, or allow only layouts with more context parallelism",
            where=document.where(f"{key}.micro_batch_tokens"),
        )


def _check_profiles(
    role: RoleSpec, key: str, document: Document, profiles: Mapping[str, ProfileFile]
) -> None:
    suited = PHASES[role.kind]
    phases: list[str] = []
    for position, name in enumerate(role.profiles):
        where = document.where(f"{key}.profiles[{position}]")
        profile = profiles[name]
        if profile.phase not in suited:
            raise WorkloadError(
                f"a {role.kind} role cannot use a profile of phase {profile.phase}",
                got=name,
                allowed=f"phase {wording.one_of(suited)}",
                where=where,
            )
        phases.append(profile.phase)
        for index, layout in enumerate(role.layouts):
            _check_layout(layout, f"{key}.layouts[{index}]", document, profile.model)
    check_one_model(role, key, document, profiles)
    if role.kind == "judge":
        _check_judge(role, key, document, phases)
    if role.kind == "rollout" and not any(phase in _GENERATES for phase in phases):
        raise WorkloadError(
            "a rollout role needs a profile that generates",
            got=f"phase {wording.one_of(dict.fromkeys(phases))}",
            allowed="phase decode or serve",
            where=document.where(f"{key}.profiles"),
        )


def _check_judge(role: RoleSpec, key: str, document: Document, phases: Sequence[str]) -> None:
    """Refuse a judge that writes verdicts of unknown length, or has verdicts and cannot write."""
    writes = any(phase in _GENERATES for phase in phases)
    if writes and role.verdict_tokens is None:
        raise WorkloadError(
            f"judge `{role.id}` writes but does not state `verdict_tokens`",
            got=f"profiles of phase {wording.one_of(dict.fromkeys(phases))}",
            way_out="state how long its verdicts are, or name a profile of phase score",
            where=document.where(key),
        )
    if role.verdict_tokens is not None and not writes:
        raise WorkloadError(
            f"judge `{role.id}` has verdicts but no profile that generates",
            got=f"phase {wording.one_of(dict.fromkeys(phases))}",
            allowed="phase decode or serve",
            where=document.where(f"{key}.profiles"),
        )


def legal_tps(model: ModelShape, most: int = _LARGEST_TP) -> tuple[int, ...]:
    """List the tensor-parallel degrees that a model's heads allow.

    Query heads divide by tp; KV heads divide by tp, or tp by the KV heads (they are then copied).
    """
    return tuple(
        tp
        for tp in range(1, min(most, model.heads) + 1)
        if model.heads % tp == 0 and (model.kv_heads % tp == 0 or tp % model.kv_heads == 0)
    )


def _check_layout(layout: LayoutSpec, key: str, document: Document, model: ModelShape) -> None:
    legal = legal_tps(model)
    if layout.tp not in legal:
        raise WorkloadError(
            f"{model.id} has {model.heads} heads and {model.kv_heads} KV heads, which tp does not divide",
            got=f"tp {layout.tp}",
            allowed=f"tp {wording.one_of(legal)}",
            where=document.where(f"{key}.tp"),
        )
    if layout.pp > model.layers:
        raise WorkloadError(
            f"{model.id} has fewer layers than pipeline stages",
            got=f"pp {layout.pp}",
            allowed=f"at most {model.layers}",
            where=document.where(f"{key}.pp"),
        )
    if layout.ep > 1 and (model.experts or 1) % layout.ep != 0:
        raise WorkloadError(
            f"{model.id} has {model.experts or 'no'} experts, which ep does not divide",
            got=f"ep {layout.ep}",
            allowed="1" if model.experts is None else "a divisor of the experts",
            where=document.where(f"{key}.ep"),
        )
