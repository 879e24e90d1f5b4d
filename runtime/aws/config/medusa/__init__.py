"""The attributes of Medusa."""
