"""HLO text: tokens, parser, printer. Start with ``attributes``: one row in both directions."""
