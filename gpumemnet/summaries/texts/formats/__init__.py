"""Model summary texts to ModelSummary records, one module a format."""
