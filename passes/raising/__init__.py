"""Import of foreign programs: normalized, merged, sizes symbolic, raised to composite ops."""
