import dataclasses
import warnings
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd
import pytest

import treeproof as tp
from treeproof.query.perturbations import resolve
from treeproof.query.threats import FeatureThreat, ThreatModel, load_threat

NAMES = ("age", "income", "3")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "threat.toml"
    path.write_text(text)
    return path


def test_a_file_with_every_key(tmp_path: Path) -> None:
    text = """
    eps = 0.1
    scale = "std"
    frozen = ["age", 2]
    moving = ["income"]
    low = 0
    high = 1e6
    arithmetic = "real"
    attacker_class = "spam"
    score_change = 0.5
    [features.income]
    eps = 500
    low = -1.0
    high = 2.0
    direction = "up"
    frozen = false
    """
    assert load_threat(written(tmp_path, text)) == ThreatModel(
        eps=0.1,
        scale="std",
        frozen=("age", 2),
        moving=("income",),
        low=0,
        high=1e6,
        arithmetic="real",
        attacker_class="spam",
        score_change=0.5,
        features={"income": FeatureThreat(eps=500, low=-1.0, high=2.0, direction="up")},
    )


def test_without_radii_of_single_features_units_are_units() -> None:
    threat = ThreatModel(eps=0.1, frozen=("age",), low=-1.0)
    ball = threat.ball(NAMES, 3, np.array([1.0, 2.0, 3.0]), has_radius=True)
    assert ball.eps == 0.1
    assert np.asarray(ball.scale).tolist() == [1.0, 2.0, 3.0]
    assert ball.frozen == ("age",)
    assert (ball.low, ball.high) == (-1.0, np.inf)
    assert threat.ball(NAMES, 3, None, has_radius=False) == tp.LInf(frozen=("age",), low=-1.0)


def test_radii_of_single_features_become_the_units() -> None:
    features = {
        "income": FeatureThreat(eps=500.0, direction="up", high=9.0),
        "3": FeatureThreat(frozen=True),
        "0": FeatureThreat(direction="down"),
    }
    ball = ThreatModel(eps=0.1, features=features).ball(
        NAMES, 3, np.array([2.0, 7.0, 4.0]), has_radius=True
    )
    reach = resolve(ball, np.zeros((1, 3)), NAMES)
    assert reach.radius == 1.0
    # "3" is the name of the third feature, so it is not a number; "0" is one.
    assert reach.down.tolist() == [0.2, 0.0, 0.0]
    assert reach.up.tolist() == [0.0, 500.0, 0.0]
    assert reach.high.tolist() == [[np.inf, 9.0, np.inf]]


def test_options_come_before_the_file_and_frozen_features_add_up() -> None:
    threat = ThreatModel(eps=0.1, frozen=("age",), low=0.0)
    both = threat.with_options(eps=0.2, frozen=("income",))
    assert both == ThreatModel(eps=0.2, frozen=("age", "income"), low=0.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("eps = ", "must be TOML. Got: Invalid value"),
        ("epsilon = 1", r"'epsilon' in .* is no key of a threat model. Did you mean 'eps'\?"),
        ("radius = 1", r"'radius' in .* Known are eps, scale, frozen"),
        ("eps = -1", "'eps' in .* must be a number >= 0, or a column .*Got -1."),
        ("eps = true", "must be a number >= 0, or a column .*Got True."),
        ("eps = nan", "must be a number >= 0, or a column .*Got nan."),
        ("eps = inf", "must be a number >= 0, or a column .*Got inf."),
        ("eps = [1]", r"must be a number >= 0, or a column .*Got \[1\]."),
        ('scale = "iqr"', "'scale' in .* must be one of one, std, range. Got 'iqr'."),
        ("frozen = 1.5", "must be a feature name or number, or a list of them. Got 1.5."),
        ("moving = [1.5]", "must be a feature name or number, or a list of them."),
        ("arithmetic = 'int'", "must be one of float64, real."),
        ("domain = 'real'", r"must be a table, \[domain\]. Got 'real'."),
        ("features = 1", r"must be tables, such as \[features.age\]."),
        ("[features]\nage = 1", r"must be tables, such as \[features.age\]."),
        ("[features.age]\ndirection = 'left'", "'features.age.direction' in .* both, up, down."),
        ("[features.age]\nfrozen = 1", "'features.age.frozen' in .* must be true or false."),
        ("[features.age]\nscale = 'std'", "'features.age.scale' in .* is no key"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(tp.InvalidInput, match=sentence):
        load_threat(written(tmp_path, text))


def test_what_does_not_fit_the_model_is_refused() -> None:
    with pytest.raises(tp.InvalidInput, match="must have a feature named 'size'"):
        ThreatModel(features={"size": FeatureThreat(low=1.0)}).ball(NAMES, 3, None, has_radius=True)
    with pytest.raises(tp.InvalidInput, match="cannot be read: No such file"):
        load_threat("absent.toml")


def test_with_radii_of_single_features_only_the_others_stay() -> None:
    threat = ThreatModel(features={"age": FeatureThreat(eps=5.0)})
    reach = resolve(threat.ball(NAMES, 3, None, has_radius=True), np.zeros((1, 3)), NAMES)
    assert reach.radius == 1.0
    assert reach.up.tolist() == reach.down.tolist() == [5.0, 0.0, 0.0]


def test_only_the_moving_features_move(tmp_path: Path) -> None:
    threat = load_threat(written(tmp_path, 'eps = 0.5\nmoving = ["income", "2"]'))
    # "3" is a name; "2" is none, and so a number.
    reach = resolve(threat.ball(NAMES, 3, None, has_radius=True), np.zeros((1, 3)), NAMES)
    assert reach.up.tolist() == [0.0, 1.0, 1.0]
    other = threat.with_options(moving=("age",), frozen=())
    reach = resolve(other.ball(NAMES, 3, None, has_radius=True), np.zeros((1, 3)), NAMES)
    assert reach.up.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(("feature", "number"), [('"income"', 1), ("2", 2)])
def test_a_single_feature_needs_no_list(tmp_path: Path, feature: str, number: int) -> None:
    moving = load_threat(written(tmp_path, f"eps = 0.5\nmoving = {feature}"))
    frozen = load_threat(written(tmp_path, f"eps = 0.5\nfrozen = {feature}"))
    for threat, is_chosen in ((moving, 1.0), (frozen, 0.0)):
        reach = resolve(threat.ball(NAMES, 3, None, has_radius=True), np.zeros((1, 3)), NAMES)
        assert [up == is_chosen for up in reach.up].index(True) == number
    both = frozen.with_options(frozen="age", moving="income")
    assert both.frozen[-1] == "age"
    assert both.moving == ("income",)


def tree_with_categories() -> tuple[tp.Model, pd.DataFrame]:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "amount": rng.normal(size=200),
            "shop": pd.Categorical(rng.choice(list("abc"), 200)),
            "hour": rng.integers(0, 24, 200).astype(float),
        }
    )
    y = (frame["amount"] + (frame["shop"] == "a") + frame["hour"] / 12 > 1).astype(int)
    model = lightgbm.LGBMClassifier(n_estimators=5, min_child_samples=5, verbose=-1)
    return tp.load(model.fit(frame, y)), frame


def test_a_threat_model_gives_what_verify_takes(tmp_path: Path) -> None:
    model, frame = tree_with_categories()
    text = 'eps = 0.25\nscale = "std"\nmoving = ["amount", "hour"]\narithmetic = "real"'
    threat = tp.load_threat(written(tmp_path, text))
    ball = threat.perturbation(model, frame)
    found = tp.verify(model, frame, None, ball, **threat.options)
    stds = frame["amount"].std(ddof=0), frame["hour"].std(ddof=0)
    by_hand = tp.LInf(0.25, scale=dict(zip(("amount", "hour"), stds, strict=True)), frozen="shop")
    expected = tp.verify(model, frame, None, by_hand, arithmetic="real")
    assert found.verdict.tolist() == expected.verdict.tolist()
    assert found.header["question"]["perturbation"]["frozen"] == ["shop"]
    radius = tp.radius(model, frame[:9], None, threat.perturbation(model, frame, asks_radius=True))
    assert radius.exact.all()
    with pytest.raises(tp.InvalidInput, match="'X' must be the rows"):
        threat.perturbation(model)
    with pytest.raises(tp.InvalidInput, match="set 'eps'"):
        ThreatModel().perturbation(model)


def test_an_eps_of_a_category_is_warned_of(tmp_path: Path) -> None:
    model, frame = tree_with_categories()
    threat = tp.load_threat(written(tmp_path, "eps = 0.1\n[features.shop]\neps = 2.0"))
    with pytest.warns(tp.NoEffectWarning, match="'eps' of feature 'shop': categories never move"):
        threat.perturbation(model)
    # A domain that does not let it change is no other case; one that does gives it a unit.
    other = dataclasses.replace(threat, domain=tp.Domain(integer="hour"))
    with pytest.warns(tp.NoEffectWarning, match="'eps' of feature 'shop': categories never move"):
        other.perturbation(model)
    for domain in (tp.Domain(categorical=["shop"]), tp.Domain(may_miss="1")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            dataclasses.replace(threat, domain=domain).perturbation(model)
    ball = tp.LInf(0.1, scale={"amount": 2.0, "shop": 3.0})
    with pytest.warns(tp.NoEffectWarning, match="'scale' of LInf has no effect on shop: categ"):
        tp.verify(model, frame[:3], None, ball)
    with pytest.warns(tp.NoEffectWarning, match="'moving' of LInf has no effect on shop"):
        tp.run(model, frame[:3], None, tp.LInf(0.1, moving=["amount", "shop"]))


def test_moving_and_frozen_are_two_words_for_one_question() -> None:
    model, frame = tree_with_categories()
    one = tp.verify(model, frame[:9], None, tp.LInf(0.3, moving="amount"))
    other = tp.verify(model, frame[:9], None, tp.LInf(0.3, frozen=["shop", "hour"]))
    assert one.header["question"] == other.header["question"]
    assert one.verdict.tolist() == other.verdict.tolist()
    with pytest.raises(tp.InvalidInput, match=r"a feature named 'amoun'\. Did you mean 'amount'"):
        tp.verify(model, frame[:9], None, tp.LInf(0.3, moving="amoun"))


def test_files_may_have_prices_and_a_domain(tmp_path):
    path = tmp_path / "threat.toml"
    path.write_text(
        """
norm = "cost"
eps = 3.0
relative = true
[features.income]
up = 2.0
direction = "up"
[features.1]
fixed = 0.5
[features.job.table.0]
2 = 4.0
[domain]
integer = ["income"]
categorical = {job = [0, 1, 2]}
ranges = {income = [0, 100]}
allow_broken_rows = true
[domain.values]
1 = [0, 1]
""",
        encoding="utf-8",
    )
    threat = load_threat(path)
    names = ("income", "flag", "job")
    cost = threat.ball(names, 3, None, has_radius=True)
    assert isinstance(cost, tp.Cost)
    assert (cost.budget, cost.relative) == (3.0, True)
    assert cost.up.tolist() == [2.0, 1.0, 1.0]
    assert cost.down.tolist() == [np.inf, 1.0, 1.0]
    assert cost.fixed.tolist() == [0.0, 0.5, 0.0]
    assert cost.table == {2: {"0": {"2": 4.0}}}
    assert cost.domain == tp.Domain(
        integer=("income",),
        categorical={"job": [0, 1, 2]},
        ranges={"income": [0, 100]},
        values={1: [0, 1]},
        allow_broken_rows=True,
    )


@pytest.mark.parametrize("norm", ["LInf", "L1", "L2", "L0"])
def test_norms_have_the_same_options(tmp_path, norm):
    path = tmp_path / "threat.toml"
    path.write_text(f'norm = "{norm}"\neps = 2\nfrozen = [0]\nlow = 0\n', encoding="utf-8")
    ball = load_threat(path).ball((), 3, None, has_radius=True)
    assert (type(ball).__name__, ball.eps, ball.frozen, ball.low) == (norm, 2, (0,), 0)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('norm = "L3"', "'norm' in .* must be one of LInf, L1, L2, L0, cost"),
        ("[features.0]\nup = 2.0", "needs norm = 'cost'"),
        ('norm = "cost"\nscale = "std"', "prices instead of 'scale'"),
        ("[domain]\nintegers = [1]", "'domain.integers' .* Did you mean 'integer'"),
        ("[domain]\none_hot = [1, 2]", "'domain.one_hot' .* must be a list of lists"),
        ("[features.0.table]\n1 = 2", "'features.0.table' .* must be tables of prices"),
    ],
)
def test_wrong_prices_and_domains_are_refused(tmp_path, content, sentence):
    path = tmp_path / "threat.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(tp.InvalidInput, match=sentence):
        load_threat(path).ball((), 3, np.ones(3), has_radius=False)


def test_other_limits_hold_besides(tmp_path: Path) -> None:
    text = "eps = 0.5\nfrozen = ['b']\nalso = {L0 = 2, L1 = 0.7}\n[features.a]\neps = 0.1\n"
    path = tmp_path / "threat.toml"
    path.write_text(text)
    threat = load_threat(path)
    ball = threat.ball(["a", "b", "c"], 3, None, has_radius=True)
    assert isinstance(ball, tp.All)
    assert {type(part).__name__: part.eps for part in ball.parts} == {
        "LInf": 1.0, "L0": 2.0, "L1": 0.7,
    }  # fmt: skip
    assert all(tuple(part.frozen) == ("b",) for part in ball.parts)
    asked = threat.ball(["a", "b", "c"], 3, None, has_radius=False)
    assert isinstance(asked, tp.All)
    assert (type(asked.parts[0]).__name__, asked.eps) == ("LInf", None)
    path.write_text("eps = 0.5\nalso = {L3 = 2}\n")
    with pytest.raises(tp.InvalidInput, match="limits by norm"):
        load_threat(path)
