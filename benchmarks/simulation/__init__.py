"""Processes that are pinned to cores: what they take alone and together, for the simulator."""
