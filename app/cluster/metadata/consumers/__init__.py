"""What consumers leave in SQL: offsets and members."""
