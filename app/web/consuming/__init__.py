"""Pages of those who consume: groups, their members and places, dead letters."""
