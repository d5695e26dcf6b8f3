"""Write the shipped `h200b-*` and `h200c-*` profiles from the journals that were measured.

    python benchmarks/shipped_from_journals.py benchmarks/h200b/qwen2.5-7b/journal.jsonl profiles/

The output depends on the journal alone, so a second run changes nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from libra_plan.profiles.measure.journal import MeasureJournal, write_profiles


def main() -> None:
    parser = argparse.ArgumentParser(description="Write profiles from a measuring journal.")
    parser.add_argument("journal", type=Path, help="the journal, named as the profiles shall name it")
    parser.add_argument("target", type=Path, help="profiles folder to write into")
    given = parser.parse_args()
    for folder in write_profiles(
        MeasureJournal(given.journal), given.target, source=given.journal.as_posix()
    ):
        print(folder)


if __name__ == "__main__":
    main()
