"""The record of the commit log, RocketMQ's layout."""
