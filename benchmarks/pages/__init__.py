"""What the pages at `/ui` cost a node, over HTTP."""
