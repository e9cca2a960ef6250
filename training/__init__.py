"""Parts of a training run; the loop itself is ``train.py``.

``run.py`` makes model and optimizer, saves, resumes and logs; ``run_folder.py`` and
``trainer_state.py`` hold what a run resumes from; ``evaluation.py`` measures the loss on tune and
which evaluation is better; ``trl_loop.py`` trains a model that reads evidence as text with TRL in
place of our loop.
"""
