"""HLO rows of the ops of numerical libraries."""
