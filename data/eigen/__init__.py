"""Themes: groups of chunks of text, and a search that uses them.

Chunks are joined to their nearest neighbours; eigenvectors of that graph, rotated, give the themes.
The search is best first, by closeness, words and shared names. ``utility_questions.py`` has an LM
make questions that a chunk answers.
"""
