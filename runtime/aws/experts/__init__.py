"""Mixtures of experts by NxD Inference's names: its modules, and checks of families."""
