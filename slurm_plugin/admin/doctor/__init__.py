"""`rad doctor`: collect facts about a site, check them, print fixes."""
