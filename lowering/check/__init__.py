"""Predicted diagnostics of neuronx-cc; no compiler runs. Start with ``check``."""
