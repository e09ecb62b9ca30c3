import datetime
import json
import math
import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import treeproof as tp
from tests.report.made_runs import EVIL, attacked_rows, many_rows, six_rows
from treeproof.checker import RowCheck
from treeproof.query.description import describe
from treeproof.report.page import write_report
from treeproof.report.properties import _card, claim_sentence
from treeproof.report.runs import RunView


class Reader(HTMLParser):
    """Collects elements, attributes, text and scripts, as a browser would find them."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.texts, self.scripts = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "script" and self.scripts and self.cdata_elem:
            self.scripts[-1] += data
        elif self.tags[-1:] != ["style"]:
            self.texts.append(data)


def read(page):
    reader = Reader()
    reader.feed(page)
    return reader


def words(page):
    return re.sub(r"\s+", " ", " ".join(read(page).texts))


def render(runs, **options):
    """The page that is written for some runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        write_report(runs, path, **options)
        return path.read_text(encoding="utf-8")


def payload(page):
    return json.loads(read(page).scripts[0])


def test_the_headline_says_clean_and_verified_accuracy():
    text = words(render(six_rows(), at=0.25))
    assert (
        "Of 6 rows, 83.3 % are classified correctly, and 50.0 % are proved to stay correct" in text
    )
    assert "moves by up to 0.25 ." in text


def test_own_labels_make_no_claim_of_accuracy():
    text = words(render(six_rows(labels="the model's own"), at=0.25))
    assert "classified correctly" not in text
    assert "50.0 % are proved to keep the model’s own label" in text


def test_what_was_asked_is_there():
    text = words(render(six_rows()))
    for said in ("xgboost 3.2.0", "f" * 64, "a" * 64, "the label is kept", "real numbers", "exact",
                 "time limit", "2 rows", "model.json", "numpy"):  # fmt: skip
        assert said in text


def test_what_was_noticed_at_loading_is_there():
    results = six_rows()
    results.header["model"]["notes"] = ["All rounds are used.", EVIL]
    page = render(results)
    assert "Note All rounds are used." in words(page)
    assert EVIL not in page


def test_witnesses_show_only_what_changed():
    page = render(six_rows())
    gallery = page[page.index('id="rows"') : page.index('id="table"')]
    first = gallery[gallery.index("Row 1<") : gallery.index("Row 0<")]
    assert first.count("<mark>") == 2
    last = gallery[gallery.index("Row 0<") : gallery.index("Row 3<")]
    assert last.count("<mark>") == 1
    assert "<mark>1.5</mark>" in last
    assert "ham → spam" in last


def test_features_are_counted_over_witnesses():
    text = words(render(six_rows()))
    # Of three witnesses two change the height and two the width.
    assert text.count("66.7 %") >= 2
    assert "by 0.375 (median)" in text  # width: 0.5 up and 0.25 down


def test_the_page_needs_nothing_from_outside():
    reader = read(render(six_rows(), shape=(1, 2)))
    for name, value in reader.attributes:
        if name in ("src", "href"):
            assert value.startswith(("data:", "#")), value
    page = render(six_rows())
    assert "default-src 'none'" in page
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", page)


def evil_results():
    results = six_rows([EVIL, EVIL + "2"])
    results.label[:] = EVIL
    results.predicted[:] = EVIL
    results.witness_label[:4] = EVIL
    results.reason[3:5] = "bad"
    model, question = results.header["model"], results.header["question"]
    model["source"] = model["library"] = model["library_version"] = EVIL
    question["goal"] = {"name": EVIL, EVIL: EVIL}
    question["perturbation"]["frozen"] = [EVIL]
    question["engine"] = {"name": EVIL}
    results.header["data"] = {"file": EVIL, "rows": EVIL, "id": EVIL}
    results.id = np.full(6, EVIL, dtype=object)
    model["loading"] = {EVIL: EVIL}
    results.header["versions"][EVIL] = EVIL
    return results


def test_text_from_models_and_data_stays_text():
    clean, evil = render(six_rows()), render(evil_results(), names=[EVIL], title=EVIL)
    expected, found = read(clean), read(evil)
    # Long names may break, which is a tag of its own.
    assert set(found.tags) - {"wbr"} == set(expected.tags) - {"wbr"}
    assert len(found.scripts) == 2
    assert found.tags.count("img") == 0
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert payload(evil)["runs"][0]["features"]["0"] == EVIL
    assert found.scripts[1] == expected.scripts[1]


def test_the_headline_says_what_it_rests_on():
    results = six_rows()
    assert "the run holds no proofs for others to check" in words(render(results))
    results.evidence = np.array(["proof"] * 5 + ["none: too hard"], dtype=object)
    assert "5 answers carry proofs, which were not checked" in words(render(results))
    checks = [RowCheck(row, "accepted") for row in range(4)]
    checks += [RowCheck(4, "rejected", "too bold"), RowCheck(5, "unproved", "too hard")]
    text = words(render(results, checks=[checks]))
    assert "accepted 4 of 6 answers; 2 were not accepted, and count as undecided here." in text
    assert "independently of the engines: 4 accepted, 1 rejected, 1 unproved" in text
    assert "Not checked what only the run says: rows and labels" in text
    whole = words(render(results, checks=[[*checks, RowCheck(-1, "rejected", "run: lost rows")]]))
    assert "the run as a whole was rejected (run: lost rows)" in whole


def test_only_what_was_accepted_is_shown_as_proved():
    results = six_rows()
    assert "and 50.0 % are proved to stay correct" in words(render(results, at=0.25))
    checks = [RowCheck(row, "accepted") for row in range(1, 6)]
    page = render(results, at=0.25, checks=[[RowCheck(0, "rejected", "why"), *checks]])
    text = words(page)
    assert "66.6 % are classified correctly, and 33.3 % are proved to stay correct" in text
    assert "rejected by the checker: why 1 row " in text
    assert payload(page)["runs"][0]["lower"][0] == 0.0
    assert payload(page)["runs"][0]["verdict"][0] == "u"
    assert "Row 0<" not in page
    # The run itself stays as it is, and a row that nobody looked at is not accepted.
    assert results.lower[0] == 0.5
    assert "rejected by the checker: it was not checked 1 row " in words(
        render(results, checks=[checks])
    )


def test_the_question_is_shown_whole():
    perturbation = {"name": "LInf", "eps": None, "scale": [0.5, 2.0], "below": 0.0, "above": 1.0,
                    "frozen": ["height"], "low": [0.0, "-inf"], "high": 9.0}  # fmt: skip
    question = {"goal": {"name": "AvoidsTarget", "target": "spam"}, "attacker_class": "ham",
                "perturbation": perturbation, "arithmetic": "float64"}  # fmt: skip
    results = six_rows(**question)
    page = render(results)
    text = words(page)
    for said in (
        "Unit 0.5 to 2, by feature",
        "Downwards times 0",
        "Frozen height",
        "Not below −∞ to 0, by feature",
        "Not above 9",
        "Claim class spam is never predicted",
        "Attacked rows those of class ham; 2 others stay as they are, and count nowhere",
        "width up only 0.5",
        "from 0 to 9",
        "height fixed",
        "Arithmetic float64 rows, rounded as the deployed model does",
    ):
        assert said in text, said
    hero = text[: text.index("Share of attacked rows that")]
    for said in ("however width rises by up to", ", with height fixed.",
                 "keep their claim (class spam is never predicted)",
                 "attacked rows (class ham)", "2 rows of other classes are not attacked and count"
                 " nowhere. Bounds: what moves stays from 0 to 9."):  # fmt: skip
        assert said in hero, said


def test_the_bounds_of_boxes_are_shown():
    results = six_rows(kind="verify", perturbation={"name": "Box", "low": [0, 1], "high": "inf"})
    results.lower[:] = results.upper[:] = np.nan
    text = words(render(results))
    assert "Lower bounds 0 to 1, by feature" in text
    assert "Upper bounds ∞" in text
    assert "however width lies anywhere from 0 and height lies anywhere from 1." in text
    each = {"name": "Box", "low": [[0.0, k] for k in range(6)], "high": 9.0}
    results.header["question"]["perturbation"] = each
    assert "Lower bounds 0 to 5, by row and feature" in words(render(results))


def test_bounds_that_are_missing_are_refused():
    results = six_rows()
    results.lower[3] = np.nan
    with pytest.raises(tp.InvalidInput, match="must have bounds"):
        render(results)


def test_an_attack_is_never_said_to_prove():
    page = render(attacked_rows())
    text = words(page)
    assert "verified" not in text.lower()
    assert "certified" not in text
    for sentence in re.findall(r"[^.:;]*prove[^.]*", text):
        assert re.search(r"proves nothing|Nothing here is proved|not proved|verify prove", sentence)
    assert "Attack report" in page
    assert "Found by an attack." in page
    assert "radius <b>≤ 0.25</b>, broken by this change" in page
    assert payload(page)["runs"][0]["attack"] is True
    # It opens at the median of what was found, not at the proved radius, which is 0.
    assert 'every feature moves by up to <b data-factor="1.0" data-up>0.5</b>' in page
    assert 'data-live="attacked-0">33.3\u00a0%</b>' in page
    assert "Distance of what the attack found" in page
    assert "no breaking change was found 2 rows" in text


def test_an_attack_beside_proofs():
    page = render([attacked_rows(), six_rows()], names=["attack", "proof"])
    assert "Robustness report" in page
    assert "proof: certified" in page
    assert "attack: resisting" in page
    assert "attack: certified" not in page
    assert "for an attack the distance of what it found" in page


def test_two_runs_are_compared():
    other = six_rows()
    other.lower[0] = other.upper[0] = 2.0
    text = words(render([six_rows(), other], names=["natural", "robust"], at=0.6))
    assert "natural against robust" in text
    assert "Largest differences between the runs" in text
    assert "verified only by robust" in text
    assert "different rows" not in text


def test_runs_that_cannot_be_compared_as_they_are_say_so():
    other = six_rows(perturbation={"name": "LInf", "eps": None, "scale": [1.0, 2.0]})
    other.row = other.row + 1
    text = words(render([six_rows(), other]))
    assert "not in the same unit" in text
    assert "about different rows" in text
    moved = six_rows()
    moved.values = moved.values + 1.0
    assert "Rows of the same number differ" in words(render([six_rows(), moved]))


def frozen_run(feature="height"):
    results = six_rows()
    results.header["question"]["perturbation"]["frozen"] = [feature]
    results.lower[:] = results.upper[:] = [0.5, np.inf, 0.0, 0.2, 0.4, np.inf]
    return results


def test_frozen_features_show_what_freezing_changes():
    page = render(six_rows(), frozen=[frozen_run()])
    # Of the rows that can be broken both times: 0.5, 0, 0.1, 0.2 become 0.5, 0, 0.2, 0.4.
    expected = "0.2 → 0.275 (+38 %), 1 row cannot be broken any more"
    assert f"{expected}, as far as is proved" in words(page)
    # Where every radius is known, and of attacked rows only.
    exact = [0, 1, 2, 5]
    page = render(six_rows().take(exact), frozen=[frozen_run().take(exact)])
    text = words(page)
    assert "0.25 → 0.25 (+0 %), 1 row cannot be broken any more" in text
    assert "as far as is proved" not in text
    spam = [run.take([0, 1, 2]) for run in (six_rows(), frozen_run())]
    for run in spam:
        run.header = run.header | {"question": run.header["question"] | {"attacker_class": "spam"}}
    assert "mean radius if frozen ∞, 1 row cannot be broken any more" in words(
        render(spam[0], frozen=[spam[1]])
    )


def test_frozen_runs_must_fit():
    other = frozen_run()
    other.header["model"]["fingerprint"] = "0"
    with pytest.raises(tp.InvalidInput, match="about a model of the report"):
        render(six_rows(), frozen=[other])
    other = frozen_run()
    other.row = other.row + 1
    with pytest.raises(tp.InvalidInput, match="about the rows of the report"):
        render(six_rows(), frozen=[other])
    other = frozen_run()
    other.header["question"]["perturbation"]["scale"] = [1.0, 2.0]
    with pytest.raises(tp.InvalidInput, match="different changes"):
        render(six_rows(), frozen=[other])
    other = frozen_run()
    other.header["question"]["kind"] = "verify"
    with pytest.raises(tp.InvalidInput, match="asks for no radii"):
        render(six_rows(), frozen=[other])
    with pytest.raises(tp.InvalidInput, match="freezes no others"):
        render(six_rows(), frozen=[six_rows()])


def test_images_are_drawn_where_a_shape_is_given():
    assert 'class="pixels' not in render(six_rows())
    page = render(six_rows(), shape=(1, 2))
    # Three fragile and five robust rows; six times a witness with its change, twice none.
    assert page.count('class="pixels"') == 3 * 3 + 3 * 3 + 2
    assert page.count('class="pixels big"') == 1
    assert payload(page)["pixels"][0]["shape"] == [1, 2]


def test_runs_without_rows_still_give_a_page():
    results = six_rows()
    results.values = results.predicted = results.witness_label = None
    text = words(render(results, shape=(1, 2)))
    assert "The run file does not hold the rows" in text


def test_verdicts_without_radii_give_a_page_without_a_curve():
    results = six_rows(kind="verify", perturbation={"name": "Box", "low": 0.0, "high": 1.0})
    results.lower[:] = results.upper[:] = np.nan
    page = render(results)
    assert 'id="curve"' not in page
    assert (
        "50.0 % are proved to stay correct however every feature lies anywhere from 0 to 1."
        in words(page)
    )


def test_a_verified_radius_is_the_one_the_page_opens_with():
    results = six_rows(kind="verify", perturbation={"name": "LInf", "eps": 0.5})
    results.lower[[0, 1, 5]], results.upper[[0, 1, 5]] = 0.5, np.inf
    page = render(results)
    assert payload(page)["start"] == 0.5
    assert payload(page)["axis"]["high"] == 0.5
    # Verdicts at one radius are no distribution of radii.
    assert 'id="radii"' not in page
    assert 'id="curve"' in page


def test_verdicts_are_not_ranked_as_if_they_were_radii():
    eps = {"name": "LInf", "eps": 0.5, "frozen": [], "low": "-inf", "high": "inf"}
    ranked = ("Most fragile", "Most robust", "nearest breaking", "Nearest to", "break first")
    settled = six_rows().take([0, 1, 2, 5])
    assert all(text in words(render([settled])) for text in ranked)
    said = words(render([six_rows(kind="verify", perturbation=eps)]))
    assert not any(text in said for text in ranked)
    assert "Rows that a change breaks" in said


def test_rows_of_an_eps_of_their_own_have_no_common_radius():
    own = {"name": "LInf", "eps": {"name": "PerRow", "column": "tolerance"}, "frozen": ["b"]}
    results = six_rows(["a", "b"], kind="verify", perturbation=own | {"low": "-inf", "high": "inf"})
    results.eps = np.array([0.5, 0.25, 0.1, 0.1, 0.2, 3.0])
    page = render([results])
    said = words(page)
    assert "however a moves by up to the row’s own eps, with b fixed" in said
    assert "unit of its own eps (column tolerance)" in said
    assert "How accuracy holds up" not in said
    (data,) = [json.loads(text) for text in read(page).scripts if text.startswith("{")]
    assert data["runs"][0]["eps"] == [0.5, 0.25, 0.1, 0.1, 0.2, 3.0]
    assert not data["withRadii"]


@pytest.mark.parametrize(
    ("claim", "sentence"),
    [
        (tp.Stable(["a", "b"], 0.5), "moves by at most 0.5 when nothing but a and b changes."),
        (tp.Fair("sex"), "The decision never depends on sex alone."),
        (
            tp.Fair("sex", confidence=0.9995),
            "alone, where both decisions are at least 99.95 % sure.",
        ),
        (tp.Monotone("a"), "The score never falls when a alone rises."),
        (
            tp.Monotone([2], "decreasing", 1e-3, label="spam"),
            "of class spam never rises by more than 0.001 when feature 2 alone rises.",
        ),
        (
            tp.HighConfidence("a", margin=2.0, label="spam"),
            "for class spam that is 2 or more of the score away from changing is never changed",
        ),
        (tp.Redundant([["a", "b"], ["c"]], 0.75), "one of these groups alone: a and b; c."),
        (
            tp.SmallNeighbourhood(0.1, 20.0),
            "at most 0.1 in every feature have scores that differ by",
        ),
        (tp.ScoreRange(low=-1.0), "The score is always from −1 to ∞."),
    ],
)
def test_claims_are_sentences(claim, sentence):
    said = claim_sentence(describe(claim))
    assert sentence in said
    assert "{" not in said
    assert claim_sentence({"name": "Other", "x": 3, "label": None}) == "Other: x 3"
    assert "by at most 0.25" in claim_sentence({"name": "SameScores", "delta": 0.25})
    assert claim_sentence({"name": "SameScores", "delta": None}).startswith("How far")


def test_without_labels_there_is_no_accuracy():
    said = words(render([six_rows(labels="the model's own")]))
    assert "How answers hold up" in said


def test_rows_that_nothing_breaks_give_a_page():
    results = many_rows(5)
    results.lower[:] = results.upper[:] = np.inf
    results.witness[:] = np.nan
    text = words(render(results))
    assert "No witness changes anything" in text
    assert "cannot be broken" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"runs": []}, "shows one run or compares two. Got 0"),
        ({"runs": [six_rows()] * 3}, "shows one run or compares two. Got 3"),
        ({"names": ["a", "b"]}, "one name for each of the 1 runs. Got 2"),
        ({"checks": []}, "one check for each of the 1 runs. Got 0"),
        ({"at": -1.0}, "'at' must be a radius"),
        ({"at": np.nan}, "'at' must be a radius"),
        ({"shape": (3, 3)}, r"as many pixels as there are features \(2\)"),
        ({"runs": "nowhere.jsonl"}, "must be readable"),
    ],
)
def test_what_cannot_be_shown_is_refused(arguments, sentence):
    with pytest.raises(tp.InvalidInput, match=sentence):
        render(arguments.pop("runs", six_rows()), **arguments)


def test_runs_without_a_single_row_are_refused():
    empty = many_rows(1)
    for name in ("row", "label", "verdict", "lower", "upper", "witness"):
        setattr(empty, name, getattr(empty, name)[:0])
    with pytest.raises(tp.InvalidInput, match="at least one row"):
        render(empty)


def test_the_same_runs_give_the_same_page_on_one_day():
    day = datetime.date(2026, 3, 1)
    page = render(many_rows(30), date=day)
    assert page == render(many_rows(30), date=day)
    assert "Robustness report · 1 March 2026" in page


def test_a_page_says_its_date_hashes_and_decision():
    results = six_rows()
    results.header["date"] = "2026-02-28"
    results.header["data"] = {"file": "rows.csv", "sha256": "d" * 64}
    results.header["model"] |= {"decision_cut": math.log(9.0)}
    text = words(render(results))
    hero = text[: text.index("Share of rows that")]
    assert "answered on 28 February 2026" in hero
    digest = RunView(results=results, name="run").rows_digest
    assert f"model file aaaaaaaaaaaa… · fingerprint ffffffffffff… · rows {digest[:12]}…" in hero
    for said in (
        f"Rows SHA-256 {digest}",
        f"Data SHA-256 {'d' * 64}",
        f"Fingerprint {'f' * 64}",
        "decision threshold 0.9 in probability",
        "Answered on 28 February 2026",
    ):
        assert said in text, said
    # The hash is that of rows and labels, in the order of their numbers.
    other = results.take(np.arange(6)[::-1])
    assert RunView(results=other, name="run").rows_digest == digest
    other.values = other.values + 1.0
    assert RunView(results=other, name="run").rows_digest != digest


def test_only_attacked_rows_count_on_a_page():
    # Rows 1 and 4 are spam: one of radius 0.25, one of at least 0.2; the others stay as they are.
    page = render(six_rows(attacker_class="spam"), at=0.22)
    text = words(page)
    assert "Of 2 attacked rows (class spam), 100.0 % are classified correctly, and 50.0 %" in text
    assert "4 rows of other classes are not attacked and count nowhere." in text
    cards = re.findall(r'data-live="n-\w+-0">(\d+)<', page)
    assert cards == ["1", "1", "0"]
    assert payload(page)["runs"][0]["attacked"] == "010010"
    gallery = page[page.index('id="rows"') : page.index('id="table"')]
    assert set(re.findall(r"Row (\d)<", gallery)) == {"1", "4"}
    assert 'value="still"' in page
    nobody = words(render(six_rows(attacker_class="eggs")))
    assert "No row is attacked: none has class eggs. Nothing is proved." in nobody


def moving(threat, n_features=4, **model):
    """The headline of a page about a threat model, and the table of what may move."""
    results = many_rows(5, n_features)
    results.header["question"]["perturbation"] = threat
    results.header["model"] |= {
        "feature_names": ["amount", "hour", "age", "zip"][:n_features]
    } | model
    results.values[0, 1] = results.witness[0, 1] = np.nan
    if threat["name"] == "Box":
        results.header["question"]["kind"] = "verify"
        results.lower[:] = results.upper[:] = np.nan
    text = words(render(results, at=0.5))
    start, end = text.index("however"), text.index("Which features break the model")
    headline = text[start:end].replace(" ,", ",").replace(" .", ".")
    return headline, text[text.index("What may move") : text.index("What was asked")]


def test_the_headline_says_what_may_move_and_what_does_not():
    ball = {"name": "LInf", "eps": None, "scale": [50.0, 2.0, 0.0, 1.0], "frozen": ["zip"]}
    headline, table = moving(ball)
    expected = "however amount moves by up to 25 and hour moves by up to 1, with age and zip fixed."
    assert headline.startswith(expected)
    assert "What is missing stays missing: hour (in 1 row)." in headline
    assert re.search(r"amount up and down 50 25 none 0\.\d+ to 0\.\d+ –", table)
    assert "2 features: age, zip fixed" in table
    headline, table = moving(ball | {"frozen": [], "scale": 3.0}, categorical=[3])
    assert headline.startswith("however amount moves by up to 1.5, hour moves by up to 1.5 and age")
    assert "A category never moves: zip." in headline
    assert "zip category, never moves" in table
    headline, _ = moving({"name": "LInf", "eps": None, "above": [1, 0, 1, 1], "low": 0.0})
    assert headline.startswith("however amount moves by up to 0.5, hour falls by up to 0.5, age")
    assert "Bounds: what moves stays from 0." in headline


def test_what_categories_may_be_has_their_names():
    box = {"name": "LInf", "eps": None, "domain": {"categorical": [[2, [0, 1, 2]]]}}
    results = many_rows(4, 3)
    results.values[:, 1:] = [[0, 2], [1, 0], [1, 2], [np.nan, 0]]
    results.header["question"]["perturbation"] = box
    results.header["model"] |= {
        "feature_names": ["amount", "sex", "job"],
        "categorical": [1, 2],
        "categories": {"1": ["f", "m"], "2": ["cook", "nurse", "smith"]},
    }
    page = render(results)
    table = words(page[page.index('id="threat"') : page.index('id="asked"')])
    assert re.search(r"job category, may change \S+ – none cook, smith", table)
    assert re.search(r"sex category, never moves – – – f, m 1", table)
    del results.header["model"]["categories"]
    page = render(results)
    assert "code 0, code 2" in words(page[page.index('id="threat"') :])
    results.header["model"]["categories"] = {"2": ["cook", "nurse", "smith"]}
    results.header["question"] |= {
        "kind": "verify",
        "perturbation": {"name": "Box", "low": [0, 0, 0], "high": [1, 1, 1]}
        | {"domain": box["domain"]},
    }
    results.lower[:] = results.upper[:] = np.nan
    page = render(results)
    table = words(page[page.index('id="threat"') : page.index('id="asked"')])
    assert "cook, nurse cook, smith" in table


def test_many_features_are_counted_in_the_headline():
    results = many_rows(5, 20)
    asked = results.header["question"]["perturbation"]
    asked |= {"scale": [0.0] * 8 + [float(k) for k in range(1, 13)]}
    text = words(render(results, at=0.5))
    assert "however 12 of 20 features move by up to 0.5 of their own units, with 8 of 20" in text
    asked |= {"scale": None, "below": [0.0] + [1.0] * 19}
    text = words(render(results, at=0.5))
    assert "however every feature moves by up to 0.5 , some one way only." in text
    asked["below"] = 1.0
    assert "however every feature moves by up to 0.5 ." in words(render(results, at=0.5))
    del results.header["model"]["categorical"]
    assert "does not say which features are categories" in words(render(results))


def test_boxes_are_stated():
    free = {"name": "Box", "low": [0.0, "-inf", 1.0, "-inf"], "high": [9.0, 5.0, 1.0, "inf"]}
    headline, table = moving(free)
    # A box need not hold the rows: a point that is not their value is where it sets them.
    assert headline.startswith(
        "however amount lies anywhere from 0 to 9, hour lies anywhere up to 5, age lies at 1 and"
        " zip lies anywhere at all."
    )
    assert "amount between bounds from 0 to 9" in table
    own = many_rows(5, 4).values
    low, high = own.copy(), own.copy()
    low[:, 0] -= 0.25
    high[:, 0] += [0.5, 0.5, 0.5, 0.5, 0.75]
    headline, table = moving({"name": "Box", "low": low.tolist(), "high": high.tolist()})
    assert headline.startswith(
        "however amount lies anywhere within bounds of its own row, with 3 of 4 features fixed."
    )
    assert "within bounds of its own row: 0.25 below to 0.5–0.75 above its value" in table


def test_bounds_are_rounded_inwards():
    headline, table = moving({"name": "Box", "low": 1 / 3, "high": 2 / 3})
    assert headline.startswith("however every feature lies anywhere from 0.333334 to 0.666666.")
    assert "between bounds from 0.333334 to 0.666666" in table


def test_distances_are_rounded_down_and_those_of_attacks_up():
    eps = {"name": "LInf", "eps": 2 / 3, "frozen": [], "low": "-inf", "high": "inf"}
    proved = words(render(six_rows(kind="verify", perturbation=eps)))
    assert "every feature moves by up to 0.6666 ." in proved
    assert "what moves by at most 0.6666666666666666, all at once" in proved
    attack = six_rows(kind="verify", perturbation=eps, engine={"name": "attack"})
    assert "every feature moves by up to 0.6667 ." in words(render(attack))
    # Products of a radius and a unit are rounded themselves.
    tiny = {"name": "LInf", "eps": 1e-7, "scale": [1000.0, 1.0]}
    text = words(render(six_rows(kind="verify", perturbation=tiny)))
    assert "width up and down 1,000 0.0001 none" in text


def test_what_goes_further_up_than_down_says_both():
    ball = {"name": "LInf", "eps": None, "below": 0.5, "above": [2.0, 2.0, 2.0, 0.0]}
    headline, table = moving(ball)
    assert headline.startswith(
        "however amount moves by up to 0.25 down and 1 up, hour moves by up to 0.25 down and 1 up,"
        " age moves by up to 0.25 down and 1 up and zip falls by up to 0.25."
    )
    assert "amount, hour, age up and down 0.5 down, 2 up 0.25 down, 1 up none" in table
    assert "zip down only 0.5 0.25 none" in table


DOMAIN = {"integer": [1], "values": [[2, [1.0, 2.0]]], "groups": [], "categorical": [[3, [0, 1]]],
          "ranges": [[0, 0.0, "inf"], [2, 1.0, 2.5]],
          "may_miss": [0], "may_fill": [], "allow_broken_rows": False,
          "rules": ["amount <= age"]}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"name": "L1", "eps": None}, "every feature changes, by moves that add up to at most 0.5"),
        ({"name": "L2", "eps": None, "scale": [1.0, 2.0, 0.0, 1.0]}, "amount, hour, zip change, by"
         " moves of a length of at most 0.5 of their own units, with age fixed."),
        ({"name": "L0", "eps": None}, "at most 0.5 of 4 features change"),
        ({"name": "L0", "eps": None, "domain": {"groups": [[[0, 1], True]]}},
         "at most 0.5 of 3 features change"),
        ({"name": "L0", "eps": None, "scale": [1.0, 2.0, 1.0, 1.0]},
         "every feature changes, counting at most 0.5 together"),
        ({"name": "Cost", "budget": None, "up": [1.0, 2.0, 3.0, "inf"], "down": "inf"},
         "amount, hour, age change at a cost of at most 0.5, with zip fixed."),
        ({"name": "LInf", "eps": None, "relative": True},
         "every feature moves by up to 0.5 times its own value"),
    ],
)  # fmt: skip
def test_other_norms_and_costs_are_told(asked, said):
    headline, table = moving(asked)
    assert re.sub(r" (?=[.,])", "", headline).startswith(f"however {said}")
    if asked["name"] == "Cost":
        assert "hour up only 2 per 1" in table


def test_domains_are_told():
    headline, table = moving({"name": "LInf", "eps": None, "domain": DOMAIN}, categorical=[3])
    assert headline.startswith("however amount, hour, age move by up to 0.5 and zip changes.")
    assert "Categories may change: zip (to 0, 1). Another category and from or to" in headline
    assert "count as a move by 1. Whole numbers only: hour. Listed values only: age" in headline
    assert "May go missing: amount. Rows must keep amount <= age." in headline
    assert "Bounds: amount from 0, age from 1 to 2.5." in headline
    assert "age (1, 2)." in headline
    for line in ("hour up and down, whole numbers", "age up and down, one of listed values",
                 "zip category, may change 1 – none", "amount up and down 1 0.5 from"):  # fmt: skip
        assert line in table
    results = many_rows(5, 4)
    results.header["question"]["perturbation"] |= {"domain": DOMAIN}
    text = words(render(results))
    assert "Whole numbers f1 Listed values only f2 Categories that may change f3" in text
    assert "Ranges f0 0 to ∞, f2 1 to 2.5 Rule amount <= age" in text


def test_categories_say_to_what_they_change_and_at_which_price():
    cost = {"name": "Cost", "budget": None, "up": 1.0, "down": 1.0, "fixed": [0, 0, 0, 2.0],
            "table": [[[3], [0.0], [1.0], 6.0], [[0, 1], [1.0, 0.0], [0.0, 1.0], 5.0]],
            "domain": {"categorical": [[3, [[0.0, [1.0, 2.0]], [1.0, [2.0]], [2.0, []]]]],
                       "groups": [[[0, 1], True]]}}  # fmt: skip
    headline, table = moving(cost, categorical=[3], categories={"3": ["a", "b", "c"]})
    assert "Categories may change: zip (a → b or c, b → c)." in headline
    assert "one changes place with another: amount or hour." in headline
    assert "Prices: zip a → b 6, amount → hour 5." in headline
    assert "zip category, may change as listed, else 3 per change" in table
    assert "[[3]" not in headline + table
    anything = cost | {"domain": {"categorical": [[3, [0.0, 1.0, 2.0]]]}, "table": []}
    headline, table = moving(anything, categorical=[3], categories={"3": ["a", "b", "c"]})
    assert "Categories may change: zip." in headline
    assert "zip category, may change 3 per change" in table


def test_rows_that_nothing_may_change_are_not_said_to_withstand_anything():
    still = {"name": "LInf", "eps": None, "frozen": ["width", "height"]}
    text = words(render(six_rows(perturbation=still)))
    assert "proved to stay correct where nothing moves: no feature may." in text


def test_costs_are_not_called_radii():
    cost = {"name": "Cost", "budget": None, "up": 1.0, "down": 1.0}
    page = render(six_rows(perturbation=cost), at=0.5)
    assert "Proved cost of the rows" in page
    assert payload(page)["measure"] == "cost"
    # A price is no distance, so there is no column of them.
    assert "by up to, at cost" not in page
    assert "by up to, at radius" in render(six_rows())


def test_two_models_are_compared_first():
    other = six_rows()
    other.lower[0] = other.upper[0] = 0.1
    other.lower[3:5] = 0.9
    text = words(render([six_rows(), other], names=["A", "B"], at=0.3))
    start = text.index("At radius 0.3 , B proves 1 row more than A")
    assert start < text.index("classified correctly")
    assert "Of 6 rows, 1 are proved only by A, 2 only by B, 1 by both, 2 by neither." in text
    same = words(render([six_rows(), six_rows()], names=["A", "B"]))
    assert "B and A prove equally many rows" in same
    # Radii of other units are not compared.
    unlike = six_rows(perturbation={"name": "LInf", "eps": None, "scale": [1.0, 2.0]})
    page = render([six_rows(), unlike])
    assert "more than" not in words(page)
    assert "Largest differences" not in page
    assert not payload(page)["comparable"]


def test_runs_are_compared_where_they_ask_the_same_of_other_radii():
    ball = six_rows().header["question"]["perturbation"]
    at = six_rows(kind="verify", perturbation=ball | {"eps": 0.25})
    text = words(render([six_rows(), at], names=["A", "B"]))
    assert "At radius 0.25 , " in text
    assert "allow different changes" not in text


@pytest.mark.parametrize(
    ("question", "note"),
    [
        ({"labels": "the model's own"}, "One run asks whether rows stay correct, the other"),
        ({"goal": {"name": "ScoreChange", "delta": 1.0}}, "are about different claims"),
        ({"attacker_class": "ham"}, "attack rows of different classes"),
        ({"arithmetic": "float64"}, "One run is about doubles, the other about real numbers"),
    ],
)
def test_runs_that_ask_something_else_are_not_compared(question, note):
    page = render([six_rows(), six_rows(**question)], names=["A", "B"])
    text = words(page)
    assert note in text
    assert 'id="compared"' not in page
    assert "allow different changes" not in text


def test_costs_beside_radii_are_called_both():
    cost = six_rows(perturbation={"name": "Cost", "budget": None, "up": 1.0, "down": 1.0})
    page = render([cost, six_rows()])
    assert "Proved cost or radius of the rows" in page
    assert "Cost or radius The cost of the cheapest change" in words(page)
    assert "The size of the smallest change" in words(page)


def test_from_a_radius_to_none_is_the_largest_difference():
    one, other = six_rows(), six_rows()
    other.lower[0] = other.upper[0] = np.inf
    other.lower[1] = other.upper[1] = 9.0
    page = render([one, other])
    gallery = page[page.index("Largest differences") : page.index("of the first run")]
    assert re.findall(r'aria-label="Row (\d)"', gallery) == ["0", "1"]


def test_undecided_rows_leave_open_which_is_nearest():
    text = words(render(six_rows()))
    for said in ("Nearest known to break", "Rows known to break first", "largest proved radius"):
        assert said in text
    assert "Most fragile" not in text
    assert "Most robust" not in text


def test_one_of_something_is_not_several():
    one = words(render(six_rows().take([0])))
    assert "Of 1 row, 100.0 % are" in one
    assert "of the 1 breaking change that was found; it moves 1 of 2 features." in one
    assert "1 of 2 features changes." in one
    assert not re.search(r"\b1 (rows|changes|features)\b", one)


def test_the_columns_of_a_group_are_counted_as_one_feature():
    group = {"groups": [[[0, 1], True]]}
    results = six_rows(perturbation={"name": "L0", "eps": None, "domain": group})
    results.values[0], results.witness[0] = [1.0, 0.0], [0.0, 1.0]
    assert "1 of 1 feature changes." in words(render(results))


def test_verdicts_say_no_lower_bound_that_was_not_asked_for():
    eps = {"name": "LInf", "eps": 0.5, "frozen": [], "low": "-inf", "high": "inf"}
    results = six_rows(kind="verify", perturbation=eps).take([0])
    results.verdict[0], results.lower[0] = "falsified", 0.0
    assert "radius ≤ 0.5" in words(render(results))


def test_what_stands_out_is_said_first():
    text = words(render(six_rows()))
    hero = text[: text.index("Share of rows that")]
    assert "What breaks it" in hero
    assert "of the 3 breaking changes that were found; they move 2 of 2 features." in hero
    assert re.search(r"Row 1 · label spam; \w+: \S+ → \S+ and 1 more; radius 0.25", hero)


def test_values_are_written_in_the_precision_of_their_columns():
    results = six_rows(["days", "income"])
    results.values[0] = [2922.0, 76100.0]
    results.witness[0] = [2915.0, 74000.0]
    page = render(results)
    changes = next(c for c in payload(page)["runs"][0]["changes"] if c)
    assert changes == [2, 1, "76,100", "74,000", "−2,100", 0, "2,922", "2,915", "−7"]


def test_names_break_between_words_and_numbers_nowhere():
    page = render(six_rows(["worst_mean.area", "a-b"]))
    assert "worst_<wbr>mean.<wbr>area" in page
    assert "a-<wbr>b" in page
    # Within a sentence only names break that are as long as a phone's line.
    hero = page[page.index('class="sentence"') : page.index('id="curve"')]
    assert "<wbr>" not in hero
    long = render(six_rows(["the_first_of_two_rather_long_names", "height"]))
    assert "the_<wbr>first" in long[long.index('class="sentence"') : long.index('id="curve"')]
    assert not re.search(r"\d[.,]<wbr>", page)


def test_identifiers_and_exponents_stay_whole():
    results = six_rows()
    results.id = np.array([f"A-0{row}" for row in range(6)], dtype=object)
    results.header["data"] = {"id": "applicant"}
    results.header["model"]["decision_rule"] = "1 iff margin >= 8.9e-08, otherwise 0"
    page = render(results)
    assert '<span class="whole">A-00</span>' in page
    assert '<span class="whole">8.9e-08,</span>' in page


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("LInf", "Radius The size of the smallest change that breaks a row: no feature"),
        ("L1", "Radius The size of the smallest change that breaks a row, all moves added up"),
        ("L2", "Radius The Euclidean length of the smallest change"),
        ("L0", "Radius How many features have to change"),
        ("Cost", "Cost The cost of the cheapest change that breaks a row"),
    ],
)
def test_the_page_says_what_its_measure_is(name, said):
    asked = {"name": name, "budget" if name == "Cost" else "eps": None}
    text = words(render(six_rows(perturbation=asked)))
    assert said in text
    # Only where each feature moves as far as the radius is a radius of 1 one unit of each.
    assert ("A radius of 1 is one unit of each feature" in text) == (name == "LInf")


def test_a_radius_in_units_says_so():
    asked = {"name": "LInf", "eps": None, "scale": [1.0, 2.0]}
    text = words(render(six_rows(perturbation=asked)))
    assert "no feature has to move further than that in its own unit, and" in text


def test_a_page_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(tp.InvalidInput, match="cannot be written"):
        write_report(six_rows(), tmp_path / "no" / "report.html")
    write_report(six_rows(), tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def answers_file(path, *, low, high, fingerprint="f" * 64, **more):
    """A file as `treeproof prove --out` and `diff --out` write it, with one answer."""
    model = {"source": "model.json", "fingerprint": fingerprint, "n_features": 2,
             "feature_names": ["width", "height"], "categorical_features": []}  # fmt: skip
    answer = {"name": "holds", "verdict": "verified", "claim": {"name": "Stable", "delta": 1.0},
              "quantity": "", "evidence": "E2:x", "witness": None}  # fmt: skip
    domain = {"name": "Box", "low": low, "high": high, "domain": None}
    document = {"format": "treeproof properties 1", "model": model, "domain": domain}
    path.write_text(json.dumps(document | more | {"properties": [answer]}))
    return path


def test_domains_of_properties_are_told_whole(tmp_path):
    path = answers_file(tmp_path / "a.json", low=0.0, high=1.0)
    document = json.loads(path.read_text())
    names = ["width", "height", "colour", "own", "rent"]
    job = {"feature": 2, "name": "colour", "categories": ["red", "blue"]}
    document["model"] |= {"n_features": 5, "feature_names": names, "categorical_features": [job]}
    document["domain"] |= {"low": [0.0, "-inf", "-inf", 0.0, 0.0], "high": [1 / 3] + ["inf"] * 4}
    document["domain"]["domain"] = {
        "integer": [1], "groups": [[[3, 4], True]], "ranges": [[1, 1.0, 9.0]], "rules": ["a < b"]
    }  # fmt: skip
    row = {"width": 0.1, "height": 2.0, "colour": 1.0, "own": 1.0, "rent": 0.0}
    witness = {"rows": [row, row], "changed": [], "scores": [[0.5], [0.5]]}
    document["properties"][0] |= {"claim": {"name": "ScoreRange", "low": 0.0}, "witness": witness}
    path.write_text(json.dumps(document))
    text = words(render(six_rows(), properties=[path]))
    said = text[text.index("Properties of every input") : text.index("What may move")]
    assert "where 2 of 5 features lie within bounds. Categories may change: colour." in said
    assert "changes place with another: own or rent. Whole numbers only: height." in said
    assert "Rows must keep a < b." in said
    for line in ("width from 0 to 0.333333", "height from 1 to 9", "colour category, may change",
                 "own one of a group"):  # fmt: skip
        assert line in said
    # One row is shown once, with the names of its categories.
    assert "score 0.5, for this row: feature value width 0.1 height 2 colour blue own 1" in said
    around = document["domain"] | {"name": "LInf", "eps": 0.5, "low": "-inf", "high": "inf"}
    path.write_text(json.dumps(document | {"domain": around}))
    text = words(render(six_rows(), properties=[path]))
    assert "where around each row width moves by up to 0.5, height moves by up to 0.5, own" in text
    assert "A category never moves: colour. Of each group" in text


def test_properties_and_differences_say_where_they_hold(tmp_path):
    everywhere = answers_file(tmp_path / "a.json", low=0.0, high=1.0)
    other = {"source": "other.onnx", "fingerprint": "0" * 64}
    two = answers_file(
        tmp_path / "b.json", low=[0.0, "-inf"], high="inf", other=other, trees="2 trees differ"
    )
    text = words(render(six_rows(), properties=[everywhere, two]))
    first = text[text.index("Properties of every input") : text.index("Difference of two models")]
    assert "model.json (ffffffffffff…), where every feature lies anywhere from 0 to 1." in first
    assert "1 of 1 answers carry a proof, which was not checked for this page." in first
    assert "not about" not in first
    assert "Claim: The score moves by at most 1" in first
    assert "It holds for every such input." in first
    same = {"name": "x", "claim": {"name": "SameLabels"}}
    said = [
        _card(same | {"verdict": verdict}, {}, is_two=True) for verdict in ("falsified", "unknown")
    ]
    assert [card["outcome"] for card in said] == [
        "It does not hold.",
        "Whether it holds is not known.",
    ]
    second = text[text.index("Difference of two models") : text.index("What may move")]
    assert "1 of 2 features lie within bounds, 1 is free. 2 trees differ." in second
    assert "This is about a model that the runs of this page are not about." in second
    assert "width from 0 height free" in second


def test_rows_are_known_by_their_identifiers():
    results = six_rows()
    results.id = np.array([700, 701, 702, 703, 704, "<x>"], dtype=object)
    results.header["data"] = {"file": "rows.csv", "id": "payment"}
    page = render(results)
    assert "Row 1 · payment 701" in words(page)
    assert payload(page)["runs"][0]["id"][5] == "<x>"
    assert "row, identifier, label or feature" in page
    results.header["model"]["loading"] = {"decision_threshold": 0.9}
    text = words(render(results))
    assert "decision threshold 0.9 in probability, as given" in text
    assert "Loaded with decision_threshold 0.9" in text


def test_changes_of_categories_have_no_size():
    results = six_rows()
    results.header["model"]["categorical"] = [0]
    page = render(results)
    features = page[page.index('id="features"') : page.index('id="rows"')]
    assert words(features).count("to another category") == 2  # a bar, and a line of the table
    assert "by 0.375 (median)" not in features
