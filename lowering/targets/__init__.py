"""What the devices are and what their compiler takes, as data with a source for each figure."""
