"""Numbers as users write them."""


def number_of(text: str) -> float:
    """The double that a number in words stands for, as everywhere else that numbers are given.

    Values and rows are doubles: 0.3 must be the same number in a rule as in a row.
    """
    return float(text)
