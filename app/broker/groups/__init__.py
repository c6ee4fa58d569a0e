"""Consumer groups: subscriptions, kinds of consumption, filters, pause, and the committed offsets
that they begin at."""
