"""Topics, groups, namespaces, schedules and deletions in SQL: a module each, no snapshot."""
