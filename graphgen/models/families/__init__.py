"""Model families, one file each. Read llama_like/llama.py first, then gpt2.py."""
