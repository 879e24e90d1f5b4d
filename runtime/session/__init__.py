"""Session of a model: step calls, launches, devices, block tables, buckets, slots of adapters."""
