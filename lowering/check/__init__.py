"""Predicted diagnostics of neuronx-cc; no compiler runs: :mod:`graphgen.lowering.check.check`."""
