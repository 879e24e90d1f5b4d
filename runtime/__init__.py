"""Runtime: load a checkpoint, compile its programs, generate tokens. Read engine.py first."""
