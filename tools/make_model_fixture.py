"""Writes a small model file to tests/fixtures, kept for ever so that old files stay readable.

Run it once per format version, and commit the file; the predictions go beside it.
"""

import json
import pathlib

import numpy as np
import pandas as pd

from varprop import FAWNRegressor, nn
from varprop.files.container import FORMAT

FOLDER = pathlib.Path(__file__).parent.parent / "tests" / "fixtures"


def main() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(50, 3)), columns=["age", "size", "dose"])
    y = pd.DataFrame({"mean": X["age"] - X["dose"], "sum": X.sum(axis=1)})
    model = FAWNRegressor(
        (6,),
        activation=nn.LeakyReLU(0.1),
        output_covariance=True,
        n_members=2,
        max_iter=100,
        random_state=0,
        dropout=0.1,
    ).fit(X, y)
    path = FOLDER / f"regressor_format_{FORMAT}.safetensors"
    model.save(path)
    rows = X.to_numpy()[:5]
    dist = model.predict_dist(X.iloc[:5])
    answer = {"X": rows.tolist(), "mean": dist.mean.tolist(), "cov": dist.cov.tolist()}
    path.with_suffix(".json").write_text(json.dumps(answer))
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
