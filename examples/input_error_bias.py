"""How far off is the spread that a known input error adds? Propagation against sampled inputs.

    python examples/input_error_bias.py

Hidden units that share an uncertain input are correlated, and propagation takes them as
independent. For trained networks of one hidden layer this prints the propagated variance over the
variance found by sampling 20,000 inputs, as smallest, median and largest over 20 rows; 1 is right.
"""

import numpy as np

from varprop import FAWNRegressor


def ratios(model, X, std, rng):
    out = []
    for row in X:
        draws = model.predict_dist(row + std * rng.normal(size=(20_000, X.shape[1])))
        sampled = draws.mean.var() + draws.var.mean()
        out.append(model.predict_var(row[None], X_std=np.full(X.shape[1], std))[0] / sampled)
    return np.array(out)


def main():
    rng = np.random.default_rng(0)
    print("units  seed  input error  smallest  median  largest")
    for units in (8, 50):
        for seed in range(2):
            X = rng.normal(size=(200, 2))
            y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=200)
            model = FAWNRegressor(units, max_iter=2000, random_state=seed).fit(X, y)
            for std in (0.1, 0.5):
                r = ratios(model, X[:20], std, rng)
                print(
                    f"{units:5d} {seed:5d} {std:12.1f} {r.min():9.2f} {np.median(r):7.2f}"
                    f" {r.max():8.2f}"
                )


if __name__ == "__main__":
    main()
