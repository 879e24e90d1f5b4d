"""Making a program fit a target."""
