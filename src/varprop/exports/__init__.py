"""A fitted model as a file that runs where no Python is: C, JavaScript, ONNX, and a page."""
