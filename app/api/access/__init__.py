"""Who asks, and whether they may: keys, decisions on the names of a path, whose a client id is."""
