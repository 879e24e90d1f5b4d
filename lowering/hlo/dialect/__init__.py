"""HLO's ops: one row per op, for writing and for reading."""
