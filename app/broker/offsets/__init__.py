"""Commits, resets and named snapshots of a group's offsets, as clients ask for them."""
