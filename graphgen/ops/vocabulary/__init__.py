"""Names of ops in other libraries: :mod:`graphgen.ops.vocabulary.synonyms`."""
