"""Making one op of several."""
