"""What the paper prints: its tables, and the parameters of its models."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Printed:
    """One line of the paper's tables for one model.

    Pairs are an average radius and the seconds per row that it took; times printed in minutes are
    in seconds here. `dp` has T, L, radius, seconds.
    """

    attack: tuple[float, float]
    milp: tuple[float, float]
    lp: tuple[float, float]
    clique_size: int
    levels: int
    ours: tuple[float, float]
    dp: tuple[int, int, float, float]
    accuracy: float
    depth: int


@dataclass(frozen=True)
class Data:
    """A dataset of the paper: sizes, the robust eps, and the lines of its two models."""

    n_train: int
    n_test: int
    n_features: int
    n_classes: int
    n_trees: int
    eps: float
    natural: Printed
    robust: Printed


DATASETS = {
    "breast_cancer": Data(
        546, 137, 10, 2, 4, 0.3,
        Printed((0.221, 2.18), (0.210, 0.012), (0.064, 0.009), 2, 1, (0.208, 0.001),
                (2, 1, 0.209, 0.001), 0.964, 6),
        Printed((0.404, 1.96), (0.400, 0.009), (0.078, 0.008), 2, 1, (0.399, 0.001),
                (2, 1, 0.399, 0.001), 0.978, 8),
    ),
    "covtype": Data(
        400_000, 181_000, 54, 7, 80, 0.2,
        Printed((0.058, 4.76), (0.028, 355), (0.005, 154), 2, 3, (0.022, 3.39),
                (2, 3, 0.024, 5.70), 0.877, 8),
        Printed((0.079, 0.481), (0.046, 305), (0.0053, 159), 2, 3, (0.032, 4.84),
                (2, 2, 0.035, 3.69), 0.847, 8),
    ),
    "diabetes": Data(
        614, 154, 8, 2, 20, 0.2,
        Printed((0.064, 1.70), (0.049, 0.061), (0.015, 0.026), 3, 2, (0.042, 0.018),
                (2, 2, 0.044, 0.013), 0.773, 5),
        Printed((0.137, 1.52), (0.112, 0.034), (0.035, 0.013), 3, 2, (0.109, 0.006),
                (2, 2, 0.111, 0.005), 0.786, 5),
    ),
    "fashion_mnist": Data(
        60_000, 10_000, 784, 10, 200, 0.1,
        Printed((0.048, 12.2), (0.014, 1150), (0.003, 898), 2, 1, (0.012, 11.8),
                (2, 1, 0.012, 22.8), 0.903, 8),
        Printed((0.153, 13.9), (0.091, 2460), (0.009, 2040), 2, 1, (0.071, 18.0),
                (2, 1, 0.071, 19.9), 0.903, 8),
    ),
    "higgs": Data(
        10_500_000, 500_000, 28, 2, 300, 0.05,
        Printed((0.015, 3.80), (0.0028, 4080), (0.00035, 3000), 4, 1, (0.0022, 1.29),
                (4, 1, 0.0023, 22.1), 0.760, 8),
        Printed((0.023, 3.58), (0.0084, 3540), (0.00031, 3240), 4, 1, (0.0063, 1.41),
                (4, 1, 0.0069, 4.25), 0.709, 8),
    ),
    "ijcnn1": Data(
        49_990, 91_701, 22, 2, 60, 0.1,
        Printed((0.047, 2.72), (0.030, 4.64), (0.008, 2.67), 2, 2, (0.026, 0.101),
                (2, 1, 0.027, 0.053), 0.980, 8),
        Printed((0.054, 2.63), (0.036, 2.52), (0.009, 1.26), 2, 2, (0.032, 0.58),
                (2, 2, 0.035, 0.655), 0.959, 8),
    ),
    "mnist": Data(
        60_000, 10_000, 784, 10, 200, 0.3,
        Printed((0.070, 11.1), (0.011, 367), (0.003, 332), 2, 2, (0.011, 5.14),
                (2, 1, 0.011, 5.10), 0.980, 8),
        Printed((0.367, 1.41), (0.264, 615), (0.019, 515), 2, 2, (0.253, 12.6),
                (2, 1, 0.264, 7.74), 0.980, 8),
    ),
    "webspam": Data(
        300_000, 50_000, 254, 2, 100, 0.05,
        Printed((0.027, 5.83), (0.00076, 47.2), (0.0002, 39.7), 2, 1, (0.0005, 0.404),
                (2, 1, 0.00051, 3.29), 0.992, 8),
        Printed((0.048, 4.97), (0.015, 83.7), (0.0024, 60.4), 2, 1, (0.011, 0.345),
                (2, 1, 0.011, 1.26), 0.983, 8),
    ),
    "mnist26": Data(
        11_876, 1_990, 784, 2, 1000, 0.3,
        Printed((0.152, 12.0), (0.057, 23.0), (0.016, 11.6), 4, 1, (0.046, 0.585),
                (4, 1, 0.050, 2.41), 0.998, 4),
        Printed((0.397, 17.2), (0.313, 91.5), (0.039, 40.0), 4, 1, (0.308, 3.68),
                (2, 1, 0.309, 5.91), 0.997, 6),
    ),
}  # fmt: skip
"""By name, in the order of the paper's tables (2 vs. 6 is `mnist26`)."""

FIRST_EPS = {
    "breast_cancer": 0.3,
    "covtype": 0.05,
    "diabetes": 0.1,
    "fashion_mnist": 0.05,
    "higgs": 0.01,
    "ijcnn1": 0.05,
    "mnist": 0.1,
    "webspam": 0.01,
    "mnist26": 0.1,
}
"""Where the ten steps of the paper's search begin; the paper does not say."""

VERIFIED_ACCURACY_AT = (0.2, 0.78)
"""Radius and verified accuracy of a robust MNIST model, as the paper's introduction has them."""
