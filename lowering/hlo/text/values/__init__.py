"""Values of HLO attributes with a grammar of their own. Start with ``brackets``."""
