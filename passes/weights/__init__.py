"""Weight preparation as programs."""
