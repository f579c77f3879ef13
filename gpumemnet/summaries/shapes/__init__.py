"""Shape inference for texts that show no shapes."""
