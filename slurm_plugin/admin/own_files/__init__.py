"""RAD's own files on a host: templates, values and a manifest."""
