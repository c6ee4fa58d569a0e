"""What several nodes do: with a real PostgreSQL, all on this machine."""
