"""A step of ranks as events in time: read step_simulation.py first."""
