"""Who may do what: actions, patterns of resources, policies, roles, and the one evaluator. Pure."""
