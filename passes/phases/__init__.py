"""The passes of each phase of the default pipeline, chosen by the options of a compilation."""
