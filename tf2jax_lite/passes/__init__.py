"""Graph to graph, and what can be known of a graph without tracing it."""
