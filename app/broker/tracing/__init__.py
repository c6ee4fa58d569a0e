"""The trace of a message, kept in a system topic."""
