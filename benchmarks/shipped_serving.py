"""Make the shipped serving profiles (`profiles/aic-*`) from AIConfigurator's measured rows.

    python benchmarks/shipped_serving.py SOURCE profiles/

SOURCE is the table. The output depends on it alone. Profiles of one layout with fewer rows than a fit
needs are kept: their other layouts can be fitted.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from libra_plan.profiles.importers.run import ImportReport, import_profile

_VLLM_SHARE = "the source does not say gpu_memory_utilization: 0.9 is vLLM's default"
_TRTLLM_SHARE = "the source does not say free_gpu_memory_fraction: 0.9 is TensorRT-LLM's default"
_BF16 = "the source leaves precision empty: bf16 is that of the published checkpoint"
_COMMON = {
    "framework-version": "unstated",  # for rows that leave it empty
    "licence": "Apache-2.0",
    "source-url": "https://github.com/ai-dynamo/aiconfigurator",
}
_VLLM = {"flags": "gpu_memory_utilization=0.9"}
_TRTLLM = {"flags": "free_gpu_memory_fraction=0.9"}

SELECTIONS: tuple[dict[str, str], ...] = (
    {"select": "model_path=meta-llama/Llama-3.1-70B,backend=vllm", "notes": _VLLM_SHARE, **_VLLM},
    {"select": "model_path=meta-llama/Llama-3.1-70B,backend=trtllm", "notes": _TRTLLM_SHARE, **_TRTLLM},
    {
        "select": "model_path=Qwen/Qwen3-32B,backend=vllm,precision=",
        "precision": "bf16",
        "notes": f"{_VLLM_SHARE}; {_BF16}",
        **_VLLM,
    },
    {
        "select": "model_path=Qwen/Qwen3-32B,backend=trtllm,backend_version=1.0.0rc3",
        "notes": _TRTLLM_SHARE,
        **_TRTLLM,
    },
    {
        "select": "model_path=meta-llama/Llama-3.1-8B-Instruct,backend=trtllm",
        "precision": "bf16",
        "notes": f"{_TRTLLM_SHARE}; {_BF16}",
        **_TRTLLM,
    },
    {"select": "model_path=nvidia/Llama-3.1-8B-Instruct-FP8,backend=vllm", "notes": _VLLM_SHARE, **_VLLM},
)
"""Dense models on vLLM and TensorRT-LLM, with the facts that the table leaves open."""


def import_shipped(source: str | Path, target_dir: str | Path) -> tuple[ImportReport, ...]:
    """Write every shipped serving profile under `target_dir`."""
    return tuple(
        import_profile("aiconfigurator", source, target_dir, replace=True, **{**_COMMON, **selection})
        for selection in SELECTIONS
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Make the shipped serving profiles.")
    parser.add_argument("source", type=Path, help="AIConfigurator's silicon_sample.csv, or a part of it")
    parser.add_argument("target", type=Path, help="profiles folder to write into")
    given = parser.parse_args(arguments)
    import_shipped(given.source, given.target)


if __name__ == "__main__":
    main()
