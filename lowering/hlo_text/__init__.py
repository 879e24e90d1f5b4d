"""HLO text: tokens, parser, printer, one row per attribute, shardings."""
