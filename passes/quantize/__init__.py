"""Making weights smaller."""
