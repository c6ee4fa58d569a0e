"""Programs that measure one thing within a process, without HTTP."""
