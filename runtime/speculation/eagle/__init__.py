"""Drafts of EAGLE: read eagle_draft.py first."""
