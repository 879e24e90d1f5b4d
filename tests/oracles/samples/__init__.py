"""Small uses of every simple op, one file a family."""
