"""What neuronx-cc would say of a module, predicted from rules: no compiler runs here."""
