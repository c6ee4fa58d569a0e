"""Pages of what waits: delayed messages for their time, transactions for a decision."""
