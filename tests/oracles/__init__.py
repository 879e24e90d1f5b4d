"""Independent answers to compare with: other people's implementations, used only by tests."""
