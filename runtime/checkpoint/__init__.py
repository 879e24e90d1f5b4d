"""Checkpoints on disk: safetensors, PyTorch, GGUF (``gguf_*``), hubs, names, quantized tensors."""
