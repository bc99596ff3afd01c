"""Tables of people who do not program: reading, encoding, fitting, predicting, writing.

What the command line does, as functions: ``open_source`` a file or a folder, then ``fit_table``,
``predict_table``, ``total_table``, ``write_table``, ``evaluate_table``, ``explain_table``,
``budget_table``, ``suggest_table`` and ``report_table``; ``compare_table`` has other methods
beside, and ``monitor_table`` says whether new rows are like those of the fit, ``model_card`` what
a model is.
pyarrow is imported by the files that need it and not here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "budgets": ["budget_table"],
        "card": ["describe_model", "model_card"],
        "comparing": ["Comparison", "Line", "compare_table"],
        "effects": ["explain_table", "report_table"],
        "fitting": ["Fitted", "fit_table"],
        "model": ["TableModel"],
        "evaluation": ["evaluate_table", "recalibrate"],
        "monitored": ["Check", "Course", "Monitored"],
        "monitoring": ["monitor_table"],
        "prediction": ["predict_table", "write_table"],
        "source": ["open_source"],
        "roles": ["Roles"],
        "rows": ["TableRows"],
        "suggestions": ["suggest_table"],
        "text": ["Dialect", "TableError"],
        "totals": ["total_table"],
    },
)
