"""PyTorch checkpoints (``torch.save``), read without PyTorch. Read torch_file.py first."""
