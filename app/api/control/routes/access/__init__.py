"""Who may do what: principals, their keys, roles, policies, and what the caller itself may."""
