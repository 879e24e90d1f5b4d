"""Processes of one launch: one program over several, each with some of its ranks."""
