"""Tokenizer files of a checkpoint. Read tokenizer_parts.py first."""
