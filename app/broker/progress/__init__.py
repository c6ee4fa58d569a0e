"""How far a group has come in a queue, and the committed offsets."""
