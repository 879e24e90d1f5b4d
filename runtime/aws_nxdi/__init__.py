"""NxD Inference: applications, forward, generate, checks of its demo."""
