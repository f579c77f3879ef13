"""One reader."""


def load_from_tsfile_to_dataframe(*_args):
    """Read nothing."""
    raise NotImplementedError
