"""Commands for what is not a message: topics, groups, nodes, keys and the rest."""
