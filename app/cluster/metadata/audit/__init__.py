"""The audit in SQL: who changed what, one chain for each writing node. Rows are only added."""
