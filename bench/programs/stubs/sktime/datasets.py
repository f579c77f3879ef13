"""Stub of the reader that is imported from sktime and not used."""


def load_from_tsfile_to_dataframe(*_args):
    """Read nothing."""
    raise NotImplementedError
