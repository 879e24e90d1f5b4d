"""What can be said about a graph without running it: work, memory, structure."""
