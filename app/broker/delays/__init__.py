"""Messages for later: timers, their records, upkeep and list."""
