"""The report in a real browser: what a reader sees, clicks and types."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

import treeproof as tp
from tests.report.made_runs import attacked_rows, many_rows, six_rows
from tests.report.test_page import answers_file, evil_results
from treeproof.results.numbers import number

pytestmark = pytest.mark.browser


def numbers(page):
    names = ("n-verified-0", "n-undecided-0", "n-broken-0")
    return [int(page.locator(f'[data-live="{name}"]').inner_text()) for name in names]


def cells(page, column):
    found = page.locator(f"#all-rows tbody tr td:nth-child({column})").all_inner_texts()
    return [text.strip() for text in found]


def unfold(page):
    for heading in page.locator(".fold").all():
        heading.click()


def is_quiet(opened):
    """No console message, and no request but for the file itself and images inside it."""
    outside = [url for url in opened.requests if not url.startswith(("file:", "data:"))]
    files = [url for url in opened.requests if url.startswith("file:")]
    return opened.messages == [] and outside == [] and len(files) == 1


@pytest.mark.parametrize("shape", [None, (1, 2)])
@pytest.mark.parametrize("runs", [1, 2])
def test_pages_load_without_messages_and_requests(open_page, runs, shape):
    opened = open_page([six_rows() for _ in range(runs)], shape=shape)
    heading = "xgboost" if runs == 1 else "xgboost 1 against xgboost 2"
    assert opened.page.inner_text("h1") == heading
    assert is_quiet(opened)


def test_the_slider_changes_counts_cursor_and_table(open_page):
    page = open_page(six_rows(), at=0.25).page
    assert numbers(page) == [3, 2, 0]
    before = float(page.locator("svg.wide .cursor").get_attribute("x1"))
    page.fill("#radius-number", "0.5")
    assert numbers(page) == [1, 2, 2]
    assert page.locator(".sentence [data-factor]").inner_text() == "0.5"
    assert page.locator('[data-live="certified-0"]').inner_text() == "16.6\u00a0%"
    assert float(page.locator("svg.wide .cursor").get_attribute("x1")) > before
    page.focus("#radius")
    page.keyboard.press("Home")
    assert numbers(page) == [5, 0, 0]
    assert "At radius 0: 5 verified" in page.inner_text("#live")
    page.keyboard.press("End")
    assert numbers(page) == [1, 1, 3]
    assert page.locator("#radius").get_attribute("aria-valuetext") != "0"
    assert set(cells(page, 4)) == {"verified", "undecided", "broken", "wrong as it stands"}


def test_counts_agree_with_python_at_every_place_of_the_slider(open_page):
    from treeproof.report.runs import RunView

    results = many_rows(200)
    run = RunView(results=results, name="run")
    page = open_page(results).page
    for place in (0, 137, 500, 861, 1000):
        page.locator("#radius").fill(str(place))
        radius = page.evaluate("Number(document.getElementById('radius-number').value)")
        page.fill("#radius-number", repr(radius))
        assert numbers(page)[0] == run.n_certified(radius)


def test_the_curve_as_a_table_is_filled_when_it_is_opened(open_page):
    page = open_page(six_rows(), at=0.25).page
    lines = page.locator("#curve-table tbody tr")
    assert lines.count() == 0
    page.get_by_text("The curve as a table").click()
    page.wait_for_function("document.querySelectorAll('#curve-table tbody tr').length === 21")
    # Shares that are proved are rounded down, those that are not excluded up.
    assert lines.first.locator("td").all_inner_texts() == ["0", "83.3\u00a0%", "83.4\u00a0%"]


def test_columns_sort_both_ways_by_mouse_and_keyboard(open_page):
    page = open_page(six_rows()).page
    head = page.locator("#all-rows thead th").nth(0)
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert cells(page, 1) == ["0", "1", "2", "3", "4", "5"]
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert cells(page, 1) == ["5", "4", "3", "2", "1", "0"]
    page.get_by_role("button", name="radius", exact=True).click()
    assert cells(page, 3) == ["0", "0.1 … 1", "≥ 0.2", "0.25", "0.5", "∞"]


def test_filters_narrow_the_table(open_page):
    page = open_page(six_rows(), at=0.25).page
    page.select_option("#state", "undecided")
    assert sorted(cells(page, 1)) == ["3", "4"]
    assert page.inner_text("#count") == "2 of 6 rows"
    page.select_option("#label", "spam")
    assert cells(page, 1) == ["4"]
    page.select_option("#state", "")
    page.select_option("#label", "")
    page.fill("#search", "width")
    assert sorted(cells(page, 1)) == ["0", "1"]
    page.fill("#search", "5")
    assert cells(page, 1) == ["5"]
    page.fill("#search", "nothing like it")
    assert "No row fits the filter" in page.inner_text("#all-rows")


def test_bounds_that_look_the_same_are_shown_once(open_page):
    results = six_rows()
    results.upper[0] = np.nextafter(0.5, 1.0)  # as of costs, whose bounds are rounded apart
    page = open_page(results).page
    assert "0.5" in cells(page, 3)
    assert "0.5 … 0.5" not in cells(page, 3)


def test_open_bounds_are_shown_no_nearer_than_they_were_proved(open_page):
    results = six_rows()
    results.lower[3:5], results.upper[3:5] = (0.39516, 12345.6), (0.39521, np.inf)
    results.exact[3:5] = False
    page = open_page(results).page
    assert {"0.3951 … 0.3953", "≥ 12,345"} <= set(cells(page, 3))
    results.lower[3:5], results.upper[3:5] = (0.0, 1.23456e-7), (9.99949e-9, np.inf)
    page = open_page(results).page
    assert {"≤ 1e−8", "≥ 1.234e−7"} <= set(cells(page, 3))


def test_rows_are_found_by_their_identifier(open_page):
    results = six_rows()
    results.id = np.array([f"p-{k}" for k in range(6)], dtype=object)
    results.header["data"] = {"id": "payment"}
    page = open_page(results).page
    assert page.locator("#all-rows thead th").nth(1).inner_text().startswith("payment")
    page.fill("#search", "P-3")
    assert cells(page, 2) == ["p-3"]


def downloaded(opened):
    with opened.page.expect_download() as waiting:
        opened.page.click("#download")
    assert waiting.value.suggested_filename == "rows.csv"
    raw = Path(waiting.value.path()).read_bytes()
    assert raw.startswith("\ufeff".encode())
    return list(csv.DictReader(io.StringIO(raw.decode("utf-8-sig"))))


def test_the_rows_that_are_chosen_are_a_file_for_spreadsheets(open_page):
    results = six_rows()
    results.id = np.array(["=1+1", *(f"p,{k}" for k in range(1, 6))], dtype=object)
    results.header["data"] = {"id": "payment"}
    opened = open_page(results)
    lines = {line["row"]: line for line in downloaded(opened)}
    assert {line["payment"] for line in lines.values()} == {
        "'=1+1",
        *(f"p,{k}" for k in range(1, 6)),
    }
    for position, row in enumerate(results.row.tolist()):
        line = lines[str(row)]
        assert float(line["lower"].replace("Infinity", "inf")) == results.lower[position]
        for change in results.changes(position) if results.witness_label[position] else []:
            assert line["state"] == "wrong as it stands" or f"{change.name}: " in line["changes"]
    opened.page.fill("#search", "p,3")
    assert [line["payment"] for line in downloaded(opened)] == ["p,3"]
    assert opened.messages == []


def test_a_file_of_two_runs_says_whose_columns_they_are(open_page):
    lines = downloaded(open_page([six_rows(), six_rows()], names=["old", "new"]))
    assert {"row", "old: state", "new: state", "old: changes", "new: lower"} <= set(lines[0])
    assert len(lines) == 6


def test_a_row_shows_its_witness(open_page):
    page = open_page(six_rows(), shape=(1, 2)).page
    page.get_by_role("button", name="Show what changes in row 1").click()
    detail = page.locator("tr.detail")
    assert "2 features change; spam becomes ham" in detail.inner_text()
    assert detail.locator("mark").all_inner_texts() == ["0.75", "3.25"]
    shown = detail.locator("canvas").evaluate_all(
        "all => all.map(c => [...c.getContext('2d').getImageData(0, 0, 2, 1).data])"
    )
    # Values 0 to 9 are black to white; the row is (1, 3) and its witness (0.75, 3.25).
    assert [s[0] for s in shown] == [28, 21]
    assert [s[4] for s in shown] == [85, 92]


def test_an_attack_is_shown_by_what_it_found(open_page):
    opened = open_page(attacked_rows())
    page = opened.page
    assert cells(page, 3) == ["≤ 0.25", "≤ 0.5", "≤ 1", "–", "–", "0"]
    page.fill("#radius-number", "0.6")
    assert page.inner_text("[data-live='attacked-0']") == "33.3\u00a0%"
    assert page.inner_text("#live") == (
        "At radius 0.6: 3 without a known breaking change, 2 broken, 1 wrong as they stand."
    )
    assert sorted(cells(page, 4)) == ["broken"] * 2 + ["none found"] * 3 + ["wrong as it stands"]
    assert "verified" not in page.inner_text("main").lower()
    assert is_quiet(opened)


def test_two_runs_filter_by_who_verifies(open_page):
    other = six_rows()
    other.lower[0] = other.upper[0] = 2.0
    page = open_page([six_rows(), other], names=["natural", "robust"], at=0.6).page
    assert cells(page, 1)[0] == "0"
    page.select_option("#state", "only-1")
    assert cells(page, 1) == ["0"]
    assert cells(page, 7) == ["1.5"]


def test_the_comparison_follows_the_radius(open_page):
    other = six_rows()
    other.lower[0] = other.upper[0] = 0.1
    other.lower[3:5] = 0.9
    page = open_page([six_rows(), other], names=["A", "B"], at=0.3).page
    assert "At radius 0.3, B proves 1 row more than A." in page.inner_text("#compared")
    page.fill("#radius-number", "0.15")
    said = page.inner_text("#compared")
    assert "At radius 0.15, B and A prove equally many rows." in said
    assert "1 are proved only by A, 1 only by B, 3 by both, 1 by neither." in said


def test_only_attacked_rows_are_counted_by_the_script(open_page):
    page = open_page(six_rows(attacker_class="spam"), at=0.22).page
    assert numbers(page) == [1, 1, 0]
    page.fill("#radius-number", "0.3")
    assert numbers(page) == [0, 1, 1]
    assert page.inner_text('[data-live="certified-0"]') == "0.0\u00a0%"
    page.select_option("#state", "still")
    assert sorted(cells(page, 1)) == ["0", "2", "3", "5"]
    assert set(cells(page, 4)) == {"not attacked"}
    assert set(cells(page, 3)) == {"–"}


def test_distances_in_the_headline_follow_the_radius(open_page):
    ball = {"name": "LInf", "eps": None, "scale": [50.0, 0.0]}
    page = open_page(six_rows(perturbation=ball), at=0.5).page
    assert "however width moves by up to 25, with height fixed." in page.inner_text(".sentence")
    page.fill("#radius-number", "0.1")
    assert "however width moves by up to 5, with" in page.inner_text(".sentence")


def test_what_is_said_of_a_radius_holds_for_what_is_shown_of_it(open_page):
    results = many_rows(400)
    page = open_page(results).page
    for place in range(0, 1000, 83):
        page.locator("#radius").fill(str(place))
        shown = float(page.input_value("#radius-number"))
        assert f"by up to {number(shown)}." in page.inner_text(".sentence")
        assert numbers(page)[0] == int((results.lower > shown).sum())
    # One that is typed, or was asked for, has more digits than are shown.
    page.fill("#radius-number", "0.123456")
    assert "by up to 0.1234." in page.inner_text(".sentence")
    eps = {"name": "LInf", "eps": 2 / 3, "scale": [0.3, 1.0]}
    verified = six_rows(kind="verify", perturbation=eps)
    page = open_page(verified).page
    assert "width moves by up to 0.2 and height moves by up to 0.6666." in page.inner_text("main")
    page.locator("#radius").fill("1000")
    assert page.inner_text("#live").startswith("At radius 0.6666: ")
    attack = six_rows(kind="verify", perturbation=eps, engine={"name": "attack"})
    page = open_page(attack).page
    assert "height moves by up to 0.6667." in page.inner_text(".sentence")


def test_radii_beside_a_box_are_counted_at_the_radius_that_is_said(open_page):
    # Rows 0 and 5 hold within 0.3; that a radius is exact says nothing of that.
    box = six_rows(kind="verify", perturbation={"name": "Box", "low": 0.0, "high": 9.0})
    box.lower[:] = box.upper[:] = np.nan
    opened = open_page([six_rows(), box], at=0.3)
    assert "33.3\u00a0% are proved to stay correct" in opened.page.inner_text(
        ".headline.r0 .sentence"
    )
    assert numbers(opened.page) == [2, 2, 1]
    assert is_quiet(opened)


def test_radii_of_other_units_have_no_difference(open_page):
    heads = "#all-rows thead"
    assert "Difference" in open_page([six_rows(), six_rows()]).page.inner_text(heads)
    unlike = six_rows(perturbation={"name": "LInf", "eps": None, "scale": [1.0, 2.0]})
    opened = open_page([six_rows(), unlike])
    assert "Difference" not in opened.page.inner_text(heads)
    assert is_quiet(opened)


def test_the_table_opens_on_what_matters(open_page):
    page = open_page(six_rows(), at=0.3).page
    # Broken or undecided first, nearest first; the wrong row 2 comes after those that hold.
    assert cells(page, 1) == ["3", "4", "1", "0", "5", "2"]
    assert cells(page, 7)[2].startswith(("width", "height"))
    other = six_rows()
    other.lower[0] = other.upper[0] = 0.1
    page = open_page([six_rows(), other], names=["A", "B"], at=0.3).page
    assert cells(page, 1)[0] == "0"


@pytest.mark.parametrize("runs", [1, 2])
def test_phones_reach_every_section_and_see_that_tables_scroll(open_page, runs):
    names = ["the_first_of_two_rather_long_names", "height"]
    results = [six_rows(names) for _ in range(runs)]
    page = open_page(results, context={"viewport": {"width": 390, "height": 800}}).page
    for link in page.locator(".topbar nav a").all():
        box = link.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
    unfold(page)
    scroll = page.locator("#all-rows-scroll")
    hint = "e => [e.classList.contains('more-right'), getComputedStyle(e, '::before').content]"
    assert scroll.evaluate(hint) == [True, '"scroll sideways →"']
    scroll.evaluate("e => { e.scrollLeft = e.scrollWidth; }")
    page.locator("#all-rows-scroll:not(.more-right)").wait_for()


def test_numbers_and_names_are_not_torn(open_page):
    rows = six_rows(["annual_income_of_the_household", "height"])
    rows.values[:, 0] += 123456.0
    rows.witness[:, 0] += 123456.0
    page = open_page(rows, context={"viewport": {"width": 390, "height": 800}}).page
    unfold(page)
    heights = page.locator(".changes td").evaluate_all(
        "all => all.map(e => { const range = document.createRange();"
        " range.selectNodeContents(e.firstChild); return range.getClientRects().length; })"
    )
    assert set(heights) == {1}
    style = "e => getComputedStyle(e).overflowWrap"
    assert set(page.locator(".changes th").evaluate_all(f"all => all.map({style})")) <= {
        "break-word",
        "normal",
    }


def test_headings_stay_with_what_follows_in_print(open_page):
    page = open_page(six_rows()).page
    page.emulate_media(media="print")
    rules = page.locator("h2, h3, h4:not(.card h4), .lead").evaluate_all(
        "all => all.map(e => getComputedStyle(e).breakAfter)"
    )
    assert set(rules) == {"avoid"}
    assert page.locator(".printed").is_visible()


def test_hovering_and_clicking_the_curve(open_page):
    opened = open_page(six_rows())
    hit = opened.page.locator("svg.wide .hit")
    hit.hover()
    assert "certified" in opened.page.inner_text("#tip")
    box = hit.bounding_box()
    hit.click(position={"x": box["width"] - 1, "y": 20})
    assert numbers(opened.page)[0] == 1
    opened.page.locator("rect.bar").first.hover()
    assert "row" in opened.page.inner_text("#tip")
    assert is_quiet(opened)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_themes_follow_the_reader_and_can_be_switched(open_page, scheme):
    page = open_page(six_rows(), context={"color_scheme": scheme}).page
    ground = "getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(ground)
    assert contrast(page) > 7.0
    page.click("#theme")
    assert page.evaluate(ground) != first
    assert contrast(page) > 7.0
    assert page.locator("#theme").get_attribute("aria-pressed") == str(scheme == "light").lower()


def contrast(page):
    """Contrast of text and ground, as accessibility guidelines count it."""
    colours = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    lights = []
    for colour in colours:
        parts = np.array([float(x) for x in colour[4:-1].split(",")]) / 255.0
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        lights.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return (max(lights) + 0.05) / (min(lights) + 0.05)


@pytest.mark.parametrize("width", [320, 390, 768])
@pytest.mark.parametrize("runs", [1, 2])
def test_nothing_is_wider_than_a_phone(open_page, width, runs):
    results = [six_rows(["a_very_long_feature_name_" * 6, "height"]) for _ in range(runs)]
    page = open_page(results, context={"viewport": {"width": width, "height": 800}}).page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shown = page.locator("svg.chart:visible").evaluate_all("all => all.map(s => s.classList[1])")
    assert set(shown) == {"narrow" if width <= 720 else "wide"}


def test_every_line_of_what_may_move_is_on_paper(open_page):
    results = many_rows(5, 40)
    results.header["question"]["perturbation"]["scale"] = [float(k) for k in range(1, 41)]
    page = open_page(results).page
    assert not page.get_by_role("rowheader", name="f39", exact=True).last.is_visible()
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#threat").get_by_role("rowheader", name="f39", exact=True).is_visible()


def test_domains_of_claims_are_on_paper(open_page, tmp_path):
    answers = answers_file(tmp_path / "a.json", low=[0.0, "-inf"], high="inf")
    opened = open_page(six_rows(), properties=[answers])
    domain = opened.page.locator("details.domain dl")
    assert not domain.is_visible()
    opened.page.emulate_media(media="print")
    opened.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert domain.is_visible()


def test_print_hides_controls_and_keeps_answers(open_page):
    page = open_page(six_rows(), context={"color_scheme": "dark"}).page
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for hidden in ("#theme", "#radius", "#filters", ".pages"):
        assert not page.locator(hidden).is_visible()
    assert page.locator(".sentence").is_visible()
    assert page.locator("svg.wide").first.is_visible()
    assert len(page.pdf()) > 10_000


def test_everything_that_can_be_used_has_a_name(open_page):
    page = open_page(six_rows(), shape=(1, 2)).page
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, input, select, img, svg[role=img]')].filter(e =>
        !(e.getAttribute('aria-label') || e.getAttribute('alt') || e.textContent.trim()
          || (e.labels && e.labels.length && e.labels[0].textContent.trim())))
        .map(e => e.outerHTML)"""
    )
    assert nameless == []
    names = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(names) == len(set(names))
    levels = [int(t[1]) for t in page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map(h => h.tagName)"
    )]  # fmt: skip
    assert levels[0] == 1
    assert levels.count(1) == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the results"


def test_hostile_names_and_labels_run_nothing(open_page):
    opened = open_page(
        [evil_results(), evil_results()], names=["</style><script>alert(3)</script>", "b"]
    )
    page = opened.page
    page.get_by_role("button", name="Show what changes in row 1", exact=True).click()
    page.locator(".bars li").first.focus()
    page.locator("svg.wide .hit").hover()
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0
    assert is_quiet(opened)


def test_ten_thousand_rows_are_shown_page_by_page(open_page):
    opened = open_page(many_rows(10_000))
    assert "10,000 rows" in opened.page.inner_text("#count")
    assert opened.page.locator("#all-rows tbody tr").count() == 25
    opened.page.click("#last")
    assert "Page 400 of 400" in opened.page.inner_text("#page")
    opened.page.fill("#radius-number", "0.123")
    assert is_quiet(opened)


def test_without_scripts_everything_but_the_table_is_there(open_page):
    opened = open_page(six_rows(), at=0.25, context={"java_script_enabled": False})
    page = opened.page
    assert "50.0\u00a0% are proved" in page.inner_text(".sentence").replace("\n", " ")
    assert page.locator('[data-live="n-verified-0"]').inner_text() == "3"
    assert page.locator("svg.wide").first.is_visible()
    assert page.locator("mark").first.is_visible()
    assert "which is turned off here" in page.inner_text("#all-rows")
    assert is_quiet(opened)


PHONE = {"viewport": {"width": 390, "height": 800}}


def test_sections_fold_on_phones_and_open_by_touch_link_and_on_paper(open_page):
    opened = open_page(six_rows(), context=PHONE)
    page, table = opened.page, opened.page.locator("#all-rows")
    assert page.locator("#curve figure").is_visible()
    heading = page.get_by_role("button", name="All rows")
    assert heading.get_attribute("aria-expanded") == "false"
    assert not table.is_visible()
    folded = page.evaluate("document.documentElement.scrollHeight")
    heading.click()
    assert table.is_visible()
    assert heading.get_attribute("aria-expanded") == "true"
    heading.click()
    assert not table.is_visible()
    page.locator('.topbar nav a[href="#features"]').click()
    page.locator("#features:not(.folded)").wait_for()
    heading.press("Enter")
    assert page.evaluate("document.documentElement.scrollHeight") > 1.3 * folded
    heading.press("Enter")
    page.emulate_media(media="print")
    assert table.is_visible()
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1000, "height": 800})
    assert table.is_visible()
    page.locator(".fold").first.wait_for(state="detached")
    assert page.get_by_role("heading", name="All rows").inner_text() == "All rows"
    is_quiet(opened)


def test_nothing_folds_where_there_is_room(open_page):
    page = open_page(six_rows(), context={"viewport": {"width": 700, "height": 800}}).page
    assert page.locator(".fold").count() == 0
    assert page.locator("#all-rows").is_visible()


def test_the_comparison_adds_up_at_every_radius(open_page):
    other = six_rows()
    other.lower[:] = [0.1, 0.4, 0.0, 0.3, 0.2, np.inf]
    page = open_page([six_rows(), other], names=["A", "B"], at=0.15).page
    for radius in ("0.15", "0.3", "0.7"):
        page.fill("#radius-number", radius)
        parts = [
            int(page.locator(f'[data-live="{name}"]').inner_text())
            for name in ("only-0", "only-1", "by-both", "by-none")
        ]
        assert sum(parts) == 6
    assert parts[3] == 5


def test_pages_of_paper_are_numbered(open_page):
    rules = open_page(six_rows()).page.evaluate(
        "[...document.styleSheets[0].cssRules].filter(r => r instanceof CSSPageRule)"
        ".map(r => r.cssText).join()"
    )
    assert "@bottom-center" in rules
    assert "counter(page)" in rules


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_a_trend_is_quiet_and_fits(browser, tmp_path, width, scheme):
    runs = [six_rows(["a_very_long_feature_name_" * 6, "height"]) for _ in range(12)]
    tp.write_trend(runs, tmp_path / "trend.html", at=0.2)
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda request: said.append(request.url))
    page.goto((tmp_path / "trend.html").as_uri())
    assert said == [(tmp_path / "trend.html").as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shown = page.locator("svg.chart:visible").evaluate_all("all => all.map(s => s.classList[1])")
    assert shown == ["narrow" if width <= 720 else "wide"]
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(15, 19, 26)") == (scheme == "dark")
    context.close()
