"""Simple ops that say an idea of a language model become the composite op of that idea."""
