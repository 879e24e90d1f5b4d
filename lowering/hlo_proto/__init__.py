"""HLO protobuf: wire format, fields, shapes, literals, instructions."""
