"""Mixtures of experts: how tokens get to their experts, and how many each takes.

Read dispatch_experts.py first; dispatched_forms.py has the forms.
"""
