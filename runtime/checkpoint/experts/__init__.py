"""The tensors of experts under the names of a family: stacked, or split."""
