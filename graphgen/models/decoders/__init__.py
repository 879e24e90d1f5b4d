"""The decoder that Llama-like families share. Read decoder.py first."""
