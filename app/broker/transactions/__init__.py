"""Half messages and their decisions."""
