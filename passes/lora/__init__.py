"""Multi-LoRA: low-rank adapters beside projections, one for each row, or merged."""
