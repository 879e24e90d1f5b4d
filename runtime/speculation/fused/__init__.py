"""Programs of a model and its draft: read fused_model.py first."""
