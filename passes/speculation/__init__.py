"""A model and its draft in one module: read join_modules.py, then fuse_speculation.py."""
