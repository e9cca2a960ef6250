"""The memory graph: what people and documents said, as facts with their times and sources.

Read ``graph.py``: ``MemoryGraph`` is the interface of the package. A graph holds objects (people,
places, things), theses (what was said of them), episodes (texts) and times, in one SQLite file or
as the rows of one tenant in PostgreSQL. From the bottom: ``record`` stores, ``extract`` turns texts
into statements, ``recall`` finds facts for a question, ``plan`` asks in steps, ``upkeep`` edits,
forgets and checks, ``ontology`` computes answers. ``conversation.py`` is the graph of one
conversation, for training and chats.
"""
