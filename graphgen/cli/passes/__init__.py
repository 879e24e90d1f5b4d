"""Commands that run, list and explain passes. Read ``opt_cmd`` first."""
