"""Low-rank adapters (LoRA): their files, and merging. Read adapter_file.py first."""
