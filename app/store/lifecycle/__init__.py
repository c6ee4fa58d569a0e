"""Opening, recovery, checkpoints, retention, repair of units."""
