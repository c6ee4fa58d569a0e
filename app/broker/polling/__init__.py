"""One request for a member of a group that reads by offset: heartbeat, fetch, commit, hand-back."""
