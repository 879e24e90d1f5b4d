"""Errors of parts of a text, which the parser reports with their place."""


class BadAttributeError(Exception):
    """A value that an attribute cannot have."""


class TextNameError(Exception):
    """A name that nothing before it in the text defines, or that something does already."""
