"""Commands for users of AWS's libraries. Read ``inference_demo`` and ``config_cmd`` first."""
