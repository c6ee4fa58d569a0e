"""How much one client may take from the others: quotas, and who fails to show a credential."""
