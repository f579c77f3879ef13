"""Parsers from model summary texts to ModelSummary records, one module per format."""
