"""Stand in for torchrun on one node: start the ranks of a script, pass SIGTERM on, wait for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def main() -> int:
    words = sys.argv[1 : sys.argv.index("--")]
    script = sys.argv[sys.argv.index("--") + 1 :]
    count = int(words[words.index("--nproc-per-node") + 1])
    ranks = [
        subprocess.Popen(
            [sys.executable, *script],
            env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)},
        )
        for rank in range(count)
    ]
    signal.signal(signal.SIGTERM, lambda number, _: [rank.send_signal(number) for rank in ranks])
    statuses = [rank.wait() for rank in ranks]
    return 1 if any(statuses) else 0


if __name__ == "__main__":
    sys.exit(main())
