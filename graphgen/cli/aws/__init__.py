"""Commands for users of AWS's libraries. Read ``config_cmd`` first."""
