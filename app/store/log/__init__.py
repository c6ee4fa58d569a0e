"""The commit log: segments, scanning, steps, what of it stays in memory."""
