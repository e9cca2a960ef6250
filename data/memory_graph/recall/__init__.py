"""From a question to facts and texts: BeamSearch, WaterCircles, A*, PageRank, vectors, themes.

``adjacency.py`` holds the graph as arrays, derived from the record and mapped from files beside it.
"""
