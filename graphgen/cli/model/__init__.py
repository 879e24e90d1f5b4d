"""Commands that make and run models. Read ``generate_cmd`` first."""
