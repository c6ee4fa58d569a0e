"""Consumer groups: their life, members, pause and positions."""
