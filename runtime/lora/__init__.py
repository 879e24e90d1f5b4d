"""Files of low-rank adapters (LoRA): formats, store, loading, merging."""
