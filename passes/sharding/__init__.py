"""From one logical graph to the program of one rank."""
