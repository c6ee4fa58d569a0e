"""Members of groups: heartbeats, liveness, their queues and queue locks."""
