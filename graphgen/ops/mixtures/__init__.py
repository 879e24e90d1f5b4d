"""The op of mixtures of experts."""
