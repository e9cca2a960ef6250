"""Every config field, and how YAML files and command lines become one checked config.

Read ``schema.py``: frozen dataclasses, each field with its meaning (those of memory graphs are in
``memory_schema.py``). ``parse.py`` reads YAML and options, ``shipped.py`` finds the configs that
come with the package, ``models.py`` resolves the name of a model, ``user_error.py`` is the class of
the errors that a user can mend. Nothing here imports another package of Turngraph.
"""
