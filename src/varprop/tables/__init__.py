"""Tables of people who do not program: reading, encoding, fitting, predicting, writing.

What the command line does, as functions: ``open_source`` a file or a folder, ``fit_table``,
``predict_table``, ``evaluate_table``. pyarrow is imported by the files that need it and not here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "errors": ["TableError"],
        "fitting": ["Fitted", "fit_table"],
        "model": ["TableModel"],
        "prediction": ["evaluate_table", "predict_table"],
        "reporting": ["report_content"],
        "source": ["open_source"],
        "survey": ["Roles"],
    },
)
