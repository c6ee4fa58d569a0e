"""Messages that were answered before they were confirmed, and that a failover may have lost."""


class LostAnswers:
    """Counts those that were given up after their answer. One per process: a leader that is deposed
    throws its broker away, and then it counts. Event loop only."""

    def __init__(self) -> None:
        self.messages = 0
