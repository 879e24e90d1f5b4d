"""Model families, one file each. Read llama.py first."""
