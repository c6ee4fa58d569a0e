"""Pages of who may do what: principals and their keys, policies, the audit."""
