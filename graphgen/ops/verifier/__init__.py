"""The verifier and the stages of the IR; read :mod:`verify` first."""
