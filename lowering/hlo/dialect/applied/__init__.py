"""HLO rows of the ops that apply a function of the module to many elements."""
