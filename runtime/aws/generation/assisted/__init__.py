"""Generation with a draft model or prompt lookup. Start with assisted_decoding.py."""
