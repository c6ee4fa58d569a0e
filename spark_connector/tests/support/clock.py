"""Time that passes only where somebody sleeps."""


class Clock:
    """`now` and `sleep` for a retry policy; `pauses` are what was slept."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds
