"""Who may do what, in SQL: principals, their keys, policies, and what a node knows of them."""
