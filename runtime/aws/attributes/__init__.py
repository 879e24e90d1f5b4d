"""The table of attributes: name, type, default, source and effect. Read attribute.py first."""
