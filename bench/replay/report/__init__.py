"""Compare recorded replays on one self-contained page (`python -m replay.report`).

runs (content of a run's file) -> charts (what is drawn, as data) -> svg -> page
"""
