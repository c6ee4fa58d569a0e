"""One repository per table or family of tables."""
