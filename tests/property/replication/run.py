"""As many random histories as fit into a time: `python -m tests.property.replication.run`.

Prints how many there were of each world. A history that breaks a promise is printed, with its seed,
and the exit status is 1.
"""

import argparse
import sys
import time
from itertools import count

from tests.property.replication.judge import Violation
from tests.property.replication.simulated_shard import SimulatedShard
from tests.property.replication.test_simulation import WORLDS

FAULTS = 30


def main() -> int:
    """The histories; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=900.0, help="of wall time")
    parser.add_argument("--first", type=int, default=0, help="the first seed of each world")
    parser.add_argument("--faults", type=int, default=FAULTS, help="in each history")
    options = parser.parse_args()
    end_s = time.monotonic() + options.seconds
    done = dict.fromkeys(WORLDS, 0)
    broken = confirmed = elections = 0
    for seed in count(options.first):
        for world, settings in WORLDS.items():
            if time.monotonic() >= end_s:
                print(f"histories: {sum(done.values())}, each with {options.faults} faults")
                for name, histories in done.items():
                    print(f"  {name}: {histories}")
                print(f"confirmed: {confirmed}, elections: {elections}, broken: {broken}")
                return 1 if broken else 0
            shard = SimulatedShard(seed, **settings)  # type: ignore[arg-type]
            try:
                shard.run(options.faults)
            except Violation as violation:
                broken += 1
                print(f"{world}: {violation}", flush=True)
            done[world] += 1
            confirmed += len(shard.judge.confirmed)
            elections += len(shard.judge.served)
    raise AssertionError("unreachable")


if __name__ == "__main__":
    sys.exit(main())
