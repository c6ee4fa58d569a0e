"""The timer log: delayed messages by due time."""
