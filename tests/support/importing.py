"""The samples of tests/data/importers/ and short ways to import them."""

from pathlib import Path

from libra_plan.profiles.importers.run import import_profile

SAMPLES = Path(__file__).parents[1] / "data" / "importers"
STACK = {"gpu-class": "h200_sxm", "model": "qwen2.5-7b", "precision": "bf16", "framework-version": "0.12.0"}
RUN = {**STACK, "gpus": "8", "tp": "1", "epochs": "1", "mini-batches": "4", "rollout-tp": "1"}

GIVEN: dict[str, tuple[str, dict[str, str]]] = {
    "vllm-serve": ("vllm_serve.jsonl", {**STACK, "tp": "1"}),
    "vllm-throughput": (
        "vllm_throughput.json",
        {**STACK, "tp": "1", "prompt-tokens": "512", "output-tokens": "256", "concurrency": "128"},
    ),
    "sglang-serve": ("sglang_llama70b_h200.jsonl", {**STACK, "model": "llama-3.1-70b", "tp": "8"}),
    "aiconfigurator": (
        "aic_llama70b_h200.csv",
        {"framework-version": "unstated", "select": "model_path=meta-llama/Llama-3.1-70B"},
    ),
    "verl": ("verl.jsonl", RUN),
    "nemo-rl": ("nemo_rl.jsonl", {**RUN, "samples": "512", "score-passes": "2"}),
    "csv": (
        "table.csv",
        {
            **STACK,
            "framework": "trtllm",
            "phase": "score",
            "tp": "1",
            "columns": "batch_sequences=bs,seq_len_tokens=length,time_s=latency_ms:ms,"
            "peak_reserved_mib=memory_gb:GB",
        },
    ),
    "recording": (
        "recording.jsonl",
        {**STACK, "framework": "fsdp", "tp": "1", "gpus": "1", "phase": "train", "role": "actor"},
    ),
}


def import_sample(name, target, **changes):
    """Import the sample of a format; `changes` replace flags (None takes one away), `source` the file.

    `replace` allows to write over what is there.
    """
    file, flags = GIVEN[name]
    source, replace = changes.pop("source", SAMPLES / file), changes.pop("replace", False)
    changed = {**flags, **{key.replace("_", "-"): value for key, value in changes.items()}}
    facts = {key: value for key, value in changed.items() if value is not None}
    report = import_profile(name, source, target, replace=replace, **facts)
    return report.folders, report
