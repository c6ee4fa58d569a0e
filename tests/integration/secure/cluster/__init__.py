"""A closed cluster, attacked, and what of it ends when a right does."""
