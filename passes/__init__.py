"""Graph to graph: the rewrites, and what runs and checks them."""
