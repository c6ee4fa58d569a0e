"""Looks at groups that change nothing: lag, and where a message stands."""
