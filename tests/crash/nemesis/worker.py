"""A worker of a history that leaves two cores room for three nodes.

python -m tests.crash.nemesis.worker produce|consume PORT FILE NAME SEED INVISIBLE_MS
"""

from typing import ClassVar

from tests.history.worker import Worker, run


class SlowWorker(Worker):
    """Sends some twenty messages a second."""

    pause_s: ClassVar[float] = 0.05


if __name__ == "__main__":
    run(SlowWorker, {"produce": SlowWorker.produce, "consume": SlowWorker.consume})
