"""Folders of files that are complete, or not there: how they are written and checked."""
