"""What the checkout needs for a release: checks, packages, the site, man pages."""
