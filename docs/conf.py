"""Sphinx settings of the documentation site; `make docs` builds it into site/."""

import varprop

project = "varprop"
author = "the varprop contributors"
copyright = author
version = release = varprop.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "numpydoc"]  # the first also reads Markdown
exclude_patterns = ["_build"]

# Notebooks are kept without outputs, so that this runs them; what they write is thrown away.
nb_execution_mode = "auto"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600

# The pages are Markdown that GitHub shows as well, so no syntax beyond tables and heading anchors.
myst_heading_anchors = 3

# Public names are documented where users import them from, not in the file they are written in.
autodoc_default_options = {
    "members": True,
    # scikit-learn adds these; their docstrings link into its own manual.
    "exclude-members": "set_fit_request,set_partial_fit_request,set_predict_request,"
    "set_predict_dist_request,set_score_request,set_log_score_request,set_predict_proba_request,"
    "set_predict_log_proba_request,set_decision_function_request",
}
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_typehints = "none"  # the docstrings say what goes in and out, in words
add_module_names = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# In docstrings `name` is an object, an argument or a value. Objects become links; the rest cannot.
default_role = "py:obj"
nitpick_ignore_regex = [("py:obj", r".*")]
nitpick_ignore = [("py:class", "numpy.float32")]  # NumPy's manual is not at hand without network

html_theme = "furo"
html_title = f"varprop {release}"
html_static_path = ["_static"]
html_css_files = ["varprop.css"]
html_show_sourcelink = False
html_copy_source = False
