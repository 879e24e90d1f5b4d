"""The tests; the folders mirror the four packages."""
