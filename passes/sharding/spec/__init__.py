"""The mesh, nominal sizes, factors of ops and logical axes of a model; read :mod:`mesh` first."""
