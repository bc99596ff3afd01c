"""scikit-learn's face: options and validation, nothing that another room does."""
