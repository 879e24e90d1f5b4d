"""One program over several processes, each with some of its ranks. Read process_group.py first."""
