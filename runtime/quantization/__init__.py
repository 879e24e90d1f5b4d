"""Calibration, GPTQ, written checkpoints, schemes compared."""
