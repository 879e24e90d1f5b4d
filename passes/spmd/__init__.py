"""Per-rank programs: partitioner, ring attention, expert exchange, collectives merged and moved."""
