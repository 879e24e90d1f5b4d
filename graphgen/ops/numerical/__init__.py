"""Ops of numerical libraries: linear systems, Fourier transforms, random bits."""
