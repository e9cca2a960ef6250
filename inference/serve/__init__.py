"""``turngraph serve``: many conversations at once, over OpenAI's chat API and in a browser.

``engine.py`` decodes in one batch that rows join and leave, ``service.py`` keeps conversations,
``open_conversation.py`` is one of them, ``app.py`` and ``*_routes.py`` speak HTTP, ``errors.py``
decides what a client is told of an error.
"""
