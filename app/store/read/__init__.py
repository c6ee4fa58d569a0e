"""Reading and checking records, look-ups, the fast paths for verified blocks."""
