"""Answers with a trained checkpoint: in Python, in batches, in a chat, over HTTP, exported.

Read ``api.py``: ``turngraph.load`` and the QA object. ``answer.py`` answers a file, ``session.py``
is one conversation, ``serve`` the server, ``explain.py`` explains answers, ``export.py`` exports a
checkpoint for servers of plain LMs. Modules named ``*_commands.py`` implement the commands whose
options ``infer.py`` and ``memory.py`` read.
"""
