"""Runs compiled programs: checkpoints, weights, KV state, sampling, generation."""
