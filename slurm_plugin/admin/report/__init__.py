"""`rad report`: one page that compares replays (bench/replay), with nothing to load from anywhere.

runs (what a run's file tells) -> charts (what is drawn, as data) -> svg (in the page) and png (files, with matplotlib)
                               -> tables -> page
"""
