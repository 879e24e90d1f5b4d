"""Low-rank adapters (LoRA): their files, merging, slots. Read adapter_file.py first."""
