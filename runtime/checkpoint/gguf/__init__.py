"""GGUF checkpoints: llama.cpp's file format. Read gguf_checkpoint.py first."""
