"""Commands that find and reduce miscompiles. Read ``validate_cmd`` first."""
