"""StableHLO rows of ops with computed shapes."""
