"""Run a measurement from the shell: `python -m libra_plan.profiles.measure --model qwen2.5-7b --out DIR`."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from libra_plan.errors import LibraError
from libra_plan.profiles.measure.architecture import BUILT_IN
from libra_plan.profiles.measure.facade import measure
from libra_plan.profiles.measure.journal import Journal
from libra_plan.profiles.measure.plan import WORKS, read_plan
from libra_plan.profiles.measure.result import write_profiles
from libra_plan.profiles.measure.runner import Settings

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m libra_plan.profiles.measure",
        description="Measure a model's roles on the local GPU, with random weights.",
    )
    parser.add_argument("--model", help=f"{', '.join(BUILT_IN)}, or a Hugging Face config.json")
    parser.add_argument("--phases", default="decode,score,train", help=f"of {', '.join(WORKS)}")
    parser.add_argument("--out", type=Path, required=True, help="folder of the journal and the profiles")
    parser.add_argument("--plan", type=Path, help="CSV of work,batch_sequences,seq_len_tokens")
    parser.add_argument("--budget-s", type=float, help="stop cleanly after this many seconds")
    parser.add_argument("--point-s", type=float, default=Settings.point_s, help="seconds of repeats a point")
    parser.add_argument("--repeats", type=int, default=Settings.repeats)
    parser.add_argument("--warmup", type=int, default=Settings.warmup)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", help="cuda:0, cuda:1, cpu …")
    parser.add_argument("--train-precision", choices=("auto", "fp32-master/bf16", "bf16"), default="auto")
    parser.add_argument("--prefix", help="first part of the profile ids; the GPU class by default")
    parser.add_argument("--gpu-class", help="the cluster's word for this GPU, when writing profiles")
    parser.add_argument("--source", help="name of the journal in the provenance")
    parser.add_argument("--journal-only", action="store_true", help="measure, write no profiles yet")
    parser.add_argument("--write-only", type=Path, metavar="JOURNAL", help="write profiles from a journal")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or convert an earlier journal; return the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        if given.write_only is not None:
            if not given.write_only.is_file():
                parser.error(f"no journal at {given.write_only}")
            journal = Journal(given.write_only)
            folders = write_profiles(journal, given.out, source=given.source, gpu_class=given.gpu_class)
        elif given.model is None:
            parser.error("--model is needed to measure")
        else:
            folders = _measure(given)
    except LibraError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    for folder in folders:
        sys.stdout.write(f"{folder}\n")
    return 0


def _measure(given: argparse.Namespace) -> tuple[Path, ...]:
    phases = tuple(phase.strip() for phase in given.phases.split(",") if phase.strip())
    settings = Settings(warmup=given.warmup, repeats=given.repeats, point_s=given.point_s)
    report = measure(
        given.model,
        phases,
        given.out,
        plan=None if given.plan is None else read_plan(given.plan, phases),
        budget_s=given.budget_s,
        settings=settings,
        seed=given.seed,
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        prefix=given.prefix,
        device=given.device,
        train_precision=given.train_precision,
        source=given.source,
        gpu_class=given.gpu_class,
        write=not given.journal_only,
    )
    return report.folders


if __name__ == "__main__":
    sys.exit(main())
