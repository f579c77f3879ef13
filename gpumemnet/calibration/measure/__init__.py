"""Programs that a Python with torch runs on a GPU to measure it; they import nothing of RAD."""
