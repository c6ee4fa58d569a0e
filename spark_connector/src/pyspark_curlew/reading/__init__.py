"""Reading: which offsets a batch covers (driver), and pulling them (executors)."""
