"""Topics and groups that are deleted and made again: nothing of one life shows in the next."""
