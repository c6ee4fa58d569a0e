"""What operators do to replicas while they are at work."""
