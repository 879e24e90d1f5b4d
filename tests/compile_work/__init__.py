"""How much work a compilation is, in numbers that no machine and no load changes."""
