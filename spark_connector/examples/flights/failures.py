"""The two ways in which the demo ends early, by exit code. Every other module has its own kinds."""


class Missing(Exception):
    """Something that the demo needs is not on this machine; the text says what to install."""


class StageFailed(Exception):
    """A stage did not come to its end; the text says why."""
