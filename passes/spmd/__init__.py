"""The SPMD partitioner: per-rank ops, interface and constants; read :mod:`partitioner` first."""
