"""Programs of several calls of others, whose states go from one call to the next."""
