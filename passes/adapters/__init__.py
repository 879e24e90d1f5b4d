"""Low-rank adapters beside the projections of a model, a different one for each row."""
