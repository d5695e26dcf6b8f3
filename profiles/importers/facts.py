"""Facts that a format does not state, and that the user must give by flags; none is guessed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import FunctionType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from libra_plan.errors import InputError, Where
from libra_plan.profiles import wording
from libra_plan.profiles.model_shapes import model_shape
from libra_plan.profiles.schema import ModelShape, Phase
from libra_plan.profiles.schema_base import Count, Name

__all__ = ["FLAGS", "Flag", "ImportFacts", "demand", "facts_from_flags", "flag_name"]

FlagValue = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class ImportFacts:
    """Facts about a measurement; None is not stated. `FLAGS` says what each one means."""

    gpu_class: str | None = None
    gpu_memory_mib: float | None = None
    model: ModelShape | None = None
    critic_model: ModelShape | None = None
    precision: str | None = None
    kv_precision: str | None = None
    recompute: str | None = None
    framework: str | None = None
    framework_version: str | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    ep: int | None = None
    gpus: int | None = None
    rollout_tp: int | None = None
    rollout_gpus: int | None = None
    samples: int | None = None
    epochs: int | None = None
    mini_batches: int | None = None
    score_passes: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    concurrency: int | None = None
    phase: str | None = None
    role: str | None = None
    tokens_counted: str | None = None
    throughput_basis: str | None = None
    tpot_definition: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    select: Mapping[str, str] = field(default_factory=dict)
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    id: str | None = None
    kind: str | None = None
    licence: str | None = None
    source_url: str | None = None
    source_commit: str | None = None
    date: str | None = None
    notes: str | None = None


Text = Annotated[str, Meta(min_length=1)]
Finite = Annotated[float, Meta(gt=0, le=1e300)]


@dataclass(frozen=True, slots=True)
class Flag:
    """What a flag's text must be (a type, or a function that reads it), what it means, and an example."""

    kind: Any
    allowed: str
    example: str

    def parse(self, text: str) -> Any:
        """Read a text; ValueError where it is not understood."""
        if isinstance(self.kind, FunctionType):
            return self.kind(text)
        return msgspec.convert(text.strip(), self.kind, strict=False)


def flag_name(fact: str) -> str:
    """Return the flag of a fact: `gpu_class` is `--gpu-class`."""
    return "--" + fact.replace("_", "-")


def _selection(text: str) -> dict[str, str]:
    """Read `column=value` pairs; nothing after the `=` selects empty cells."""
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    keys = [key.strip() for key, _, _ in pairs]
    wrong = not pairs or not all(keys) or not all(equals for _, equals, _ in pairs)
    if wrong or len(set(keys)) < len(keys):  # otherwise one of two values would be dropped silently
        raise ValueError
    return {key.strip(): value.strip() for key, _, value in pairs}


def _pairs(text: str) -> dict[str, str]:
    pairs = _selection(text)
    if not all(pairs.values()):
        raise ValueError
    return pairs


def _values(text: str) -> dict[str, FlagValue]:
    return {key: _value(value) for key, value in _pairs(text).items()}


def _value(text: str) -> FlagValue:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


FLAGS: dict[str, Flag] = {
    "gpu_class": Flag(Name, "the GPU class as the cluster file names it", "h200_sxm"),
    "gpu_memory_mib": Flag(Finite, "the memory of one GPU in MiB, as nvidia-smi shows it", "143771"),
    "model": Flag(Text, "a known model or the path of its config.json", "qwen2.5-7b"),
    "params": Flag(Count, "the model's number of parameters", "8190735360"),
    "critic_model": Flag(Text, "the critic: a known model or the path of its config.json", "qwen2.5-7b"),
    "precision": Flag(Text, "the precision of weights and arithmetic", "bf16"),
    "kv_precision": Flag(Text, "the precision of the KV cache", "fp8"),
    "recompute": Flag(Text, "how activations are recomputed", "full"),
    "framework": Flag(Text, "the engine or trainer that was measured", "vllm"),
    "framework_version": Flag(Text, "its version, or `unstated` when nobody knows it any more", "0.12.0"),
    "tp": Flag(Count, "tensor-parallel ranks of one replica", "1"),
    "pp": Flag(Count, "pipeline stages of one replica", "1"),
    "cp": Flag(Count, "context-parallel ranks of one replica", "1"),
    "ep": Flag(Count, "expert-parallel ranks of one replica", "1"),
    "gpus": Flag(Count, "GPUs of the whole run", "8"),
    "rollout_tp": Flag(Count, "tensor-parallel ranks of one rollout engine", "1"),
    "rollout_gpus": Flag(Count, "GPUs that generate", "8"),
    "samples": Flag(Count, "samples of one step: prompts × responses of each", "512"),
    "epochs": Flag(Count, "passes of the optimizer over one step's samples", "1"),
    "mini_batches": Flag(Count, "optimizer steps of one such pass", "1"),
    "score_passes": Flag(Count, "forward passes that one log-probability timing covers", "2"),
    "prompt_tokens": Flag(Count, "tokens of one prompt", "1024"),
    "output_tokens": Flag(Count, "tokens generated per request", "1024"),
    "concurrency": Flag(Count, "requests in flight", "64"),
    "phase": Flag(Phase, "decode, serve, score, train", "serve"),
    "role": Flag(Text, "the role whose windows are taken", "actor"),
    "tokens_counted": Flag(
        Literal["input", "output", "input+output"], "input, output or input+output", "output"
    ),
    "throughput_basis": Flag(Literal["total", "per_gpu"], "total or per_gpu", "total"),
    "tpot_definition": Flag(
        Literal["decode", "e2e"], "decode for (e2e − ttft) ÷ (output − 1), e2e for e2e ÷ output", "decode"
    ),
    "columns": Flag(
        _pairs, "pairs of our column and the file's column:unit, each of ours once", "time_s=latency:ms"
    ),
    "select": Flag(
        _selection, "pairs of a column and the value its rows must have, each column once", "backend=vllm"
    ),
    "flags": Flag(
        _values, "pairs of an engine's setting and its value, each once", "gpu_memory_utilization=0.9"
    ),
    "id": Flag(Name, "the profile's id, or the beginning of the ids", "my-run"),
    "kind": Flag(
        Literal["measured", "published", "simulated", "derived"],
        "measured, published, simulated or derived",
        "measured",
    ),
    "licence": Flag(Text, "the licence of the data", "Apache-2.0"),
    "source_url": Flag(Text, "where the data are published", "https://example.org/results"),
    "source_commit": Flag(Text, "the commit they were taken from", "8f99e7d"),
    "notes": Flag(Text, "what a reader of the profile must know", "a warm cache"),
    "date": Flag(Text, "when it was measured", "2026-01-31"),
}


def facts_from_flags(given: Mapping[str, str]) -> ImportFacts:
    """Parse flags (`gpu-class`, `--gpu-class` or `gpu_class` to text); refuse unknown ones."""
    facts: dict[str, Any] = {}
    for key, text in given.items():
        name = key.removeprefix("--").replace("-", "_")
        flag = FLAGS.get(name)
        if flag is None:
            flags = sorted(map(flag_name, FLAGS))
            way_out = wording.did_you_mean(flag_name(name), flags) or "leave it out"
            raise InputError(
                "unknown flag", got=flag_name(name), allowed=wording.one_of(flags), way_out=way_out
            )
        try:
            facts[name] = flag.parse(text)
        except (ValueError, msgspec.ValidationError):
            raise InputError(
                f"{flag_name(name)} is not understood",
                got=text,
                allowed=flag.allowed,
                way_out=f"such as {flag_name(name)} {flag.example}",
            ) from None
    params = facts.pop("params", None)
    for name in ("model", "critic_model"):
        if name in facts:
            facts[name] = model_shape(facts[name], params if name == "model" else None)
    return ImportFacts(**facts)


def demand(facts: ImportFacts, names: Iterable[str], what: str, source: str) -> None:
    """Refuse, naming every flag at once, when the file does not say something and the user did not.

    `what` names the format; `source` is the file.
    """
    missing = [name for name in dict.fromkeys(names) if getattr(facts, name) in (None, {}, ())]
    if not missing:
        return
    listed = wording.one_of(map(flag_name, missing))
    raise InputError(
        f"{what} does not say what a profile must state",
        got=f"no {listed}",
        allowed="; ".join(f"{flag_name(name)}: {FLAGS[name].allowed}" for name in missing),
        way_out="add "
        + " ".join(f"{flag_name(name)} {FLAGS[name].example}" for name in missing)
        + ", with your own values",
        where=Where(source),
    )
