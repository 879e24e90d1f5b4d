"""Commands that show, compare, cut and run programs. Read ``inspect_cmd`` first."""
