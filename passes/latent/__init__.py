"""Latent attention: keys and values made of one cached vector, or queries brought to it."""
