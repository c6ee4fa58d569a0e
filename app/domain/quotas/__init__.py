"""How much of something may be done in a time."""
