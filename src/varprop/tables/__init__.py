"""Tables of people who do not program: reading them, encoding columns, writing predictions.

pyarrow is imported by the files that need it and not here.
"""
