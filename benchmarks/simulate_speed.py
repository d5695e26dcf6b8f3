"""Time the simulator: `simulate_speed.py [--world busy-512] [--hours 24] [--policies equal,ours]`.

Prints a JSON line for each policy, in processor seconds: other work on the machine hardly counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import msgspec

from libra_plan.planner.simulate.engine import run_world
from libra_plan.planner.simulate.policies import make_policy
from libra_plan.planner.simulate.world import World, read_world, shipped_worlds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world", default="busy-512", help="shipped world, or file (busy-512)")
    parser.add_argument("--hours", type=float, help="simulated hours (the world's own)")
    parser.add_argument("--policies", default="equal,best-static,ours", help="with commas")
    options = parser.parse_args()
    world = read_world(shipped_worlds().get(options.world, Path(options.world)))
    if options.hours is not None:
        world = msgspec.structs.replace(world, hours=options.hours)
    for policy in options.policies.split(","):
        print(json.dumps(measure(world, policy)), flush=True)


def measure(world: World, policy: str) -> dict[str, object]:
    """Run a world once, seed 0, and time it."""
    begun = time.process_time()
    record = run_world(world, make_policy(policy), 0, clock=time.process_time)
    return {
        "world": world.id,
        "gpus": world.site.gpus,
        "hours": world.hours,
        "policy": policy,
        "cpu_s": round(time.process_time() - begun, 1),
        "of_decisions_s": round(sum(record.decide_s), 1),
        "decisions": len(record.decide_s),
        "events": record.events,
        "steps": len(record.steps),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


if __name__ == "__main__":
    main()
