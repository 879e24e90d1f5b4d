"""Rules of neuronx-cc, checked without the compiler: predicates, findings, evidence."""
