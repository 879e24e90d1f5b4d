"""What CI runs: all quick tests, a share of the slow ones, and again those that failed."""
