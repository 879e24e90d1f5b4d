"""Commands and flags of speculative decoding. Read speculate_cmd.py first."""
