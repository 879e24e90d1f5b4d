"""HLO protobufs: wire format, messages, shapes, literals. Start with ``wire``."""
