"""What a node tells of its requests: `/metrics`, the access log, slow sends, who called."""
