"""Keep the user's files unchanged while a script is traced."""
