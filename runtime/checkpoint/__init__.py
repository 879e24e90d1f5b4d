"""Open a checkpoint from disk without reading its weights, and read tensors one at a time."""
