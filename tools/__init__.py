"""Tools for a release: checks, packages, the site, man pages."""
