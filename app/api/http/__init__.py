"""Parts of HTTP for both planes: errors, request context, parameters, conditions, memory budget."""
