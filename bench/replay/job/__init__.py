"""Programs inside a job of a replay: the client that its script starts, and the trainings."""
