"""Stands for sktime, of which one reader is imported and not used."""
