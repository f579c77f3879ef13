"""`rad report`: one self-contained page that compares replays (bench/replay).

runs (content of a run's file) -> charts (what is drawn, as data) -> svg (in the page) and png (files, with matplotlib)
                               -> tables -> page
"""
