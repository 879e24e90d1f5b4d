"""The sharding solver: strategies per op, and a beam search for the cheapest combination.

Read :mod:`strategies` first, then :mod:`beam_search`; :mod:`sharding_plan` applies it to programs.
"""
