"""Messages sent by a calendar."""
