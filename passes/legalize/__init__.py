"""Programs in the forms a target runs fast: read :mod:`graphgen.passes.legalize.legalize` first."""
