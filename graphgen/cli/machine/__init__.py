"""Commands that know this machine."""
