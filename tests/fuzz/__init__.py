"""Fuzzing: damaged files for every reader, and wrong bodies for the server.

Read ``targets.py`` first (the readers, with small right inputs), then ``mutations.py`` (the damage)
and ``__main__.py`` (`make fuzz MINUTES=10`). An input is made of its target and its number alone:
a number that fails is a reproduction.
"""
