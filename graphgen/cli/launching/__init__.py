"""Commands that start others in several processes."""
