"""Who takes what he did not book: seen by rad-monitor, stopped as the site wants, and told to those it hurt."""
