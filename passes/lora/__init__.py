"""Low-rank adapters beside projections, one for each row. Read multi_lora.py first."""
