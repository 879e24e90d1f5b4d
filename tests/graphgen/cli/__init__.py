"""The command line, in process where that is enough."""
