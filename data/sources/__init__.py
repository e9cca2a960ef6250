"""One module for each benchmark or file format, to conversations, pools and texts.

Read ``readers.py`` for users' files, with ``document.py`` for how a document becomes passages;
``written.py`` is a small benchmark to start from, ``mixture.py`` draws from several.
"""
