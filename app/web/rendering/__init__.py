"""Everything the pages look like: templates, languages, how values read, static files."""
