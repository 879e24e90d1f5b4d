"""Changes of programs that read prompts, for rings of ranks; read balance_tokens.py first."""
