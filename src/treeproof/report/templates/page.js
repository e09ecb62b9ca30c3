"use strict";
// Everything that comes from data is put into the page as text, never as markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const real = (values) => values.map((v) => (v === null ? NaN : v === "inf" ? Infinity : v));
  const runs = data.runs.map((run) => ({ ...run, lower: real(run.lower), upper: real(run.upper), size: run.row.length, n: run.attacked.split("1").length - 1 }));
  const PAGE_SIZE = 25;
  let radius = data.start;

  const number = (value, digits = 4) => {
    if (Number.isNaN(value) || value === null) return "–";
    if (!Number.isFinite(value)) return "∞";
    if (value === 0) return "0";
    // The rules of numbers.py: a few digits, but whole thousands.
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    const exponent = Number(power);
    const plain = exponent > -5 && exponent < 15;
    const text = plain ? value.toLocaleString("en-US", { maximumFractionDigits: Math.max(digits - 1 - exponent, 0) }) : `${Number(mantissa)}e${exponent}`;
    return text.replaceAll("-", "−");
  };
  // A number >= 0 with a few digits, and whole thousands, that is never above (way -1) or below (1).
  const towards = (value, way, digits = 4, slack = 0) => {
    if (!Number.isFinite(value) || value === 0) return value;
    const exponent = Number(value.toExponential().split("e")[1]);
    const kept = Math.min(Math.max(digits, exponent + 1), 17);
    const near = Number(value.toPrecision(kept));
    if (way * (near - value) >= -slack * value) return near;
    return Number((near + way * 10 ** (exponent - kept + 1)).toPrecision(kept));
  };
  // How far something goes is said so that what is proved for it holds for what is said; the product
  // of a radius and a unit is rounded itself.
  const reach = (value, isAttack) => number(towards(value, isAttack ? 1 : -1, 4, 2 ** -51));
  const isAttack = runs.every((run) => run.attack);
  // What is proved is rounded down, what is not excluded up.
  const percentDown = (part, whole) => (whole ? `${(Math.floor((1000 * part) / whole) / 10).toFixed(1)}\u00a0%` : "–");
  const percentUp = (part, whole) => (whole ? `${(Math.ceil((1000 * part) / whole) / 10).toFixed(1)}\u00a0%` : "–");
  const count = (n) => n.toLocaleString("en-US");
  const counted = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;
  const element = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };

  // The same rules as on the axis of the charts: linear, or bent near zero.
  const { high, bend } = data.axis;
  const place = (r) => Math.min(Math.max(bend === null ? r / high : Math.asinh(r / bend) / Math.asinh(high / bend), 0), 1);
  // A radius is what is shown of it; the end of the axis is what was asked for.
  const radiusAt = (t) => (t >= 1 ? high : towards(bend === null ? t * high : bend * Math.sinh(t * Math.asinh(high / bend)), -1));

  const STATE_WORDS = { verified: "verified", undecided: "undecided", broken: "broken", wrong: "wrong as it stands", still: "not attacked", "": "–" };
  if (data.recourse) Object.assign(STATE_WORDS, { verified: "no way at this cost", broken: "has a way" });
  const VERDICTS = { v: "verified", f: "broken", u: "undecided" };
  const state = (run, i, r) => {
    if (run.attacked[i] === "0") return "still";
    if (run.broken[i] === "1") return "wrong";
    // Of a radius the verdict says that it is known, not that the row holds within another one.
    if (!run.radii) return VERDICTS[run.verdict[i]];
    if (run.lower[i] > r || (run.lower[i] === r && run.closed[i] === "1")) return "verified";
    if (run.upper[i] < r || (run.upper[i] === r && run.attained[i] === "1")) return "broken";
    return "undecided";
  };
  const tally = (run, r) => {
    const counts = { verified: 0, undecided: 0, broken: 0, wrong: 0, still: 0 };
    for (let i = 0; i < run.size; i += 1) counts[state(run, i, r)] += 1;
    return counts;
  };

  const live = (name, text) => document.querySelectorAll(`[data-live="${name}"]`).forEach((node) => { node.textContent = text; });
  const showRadius = () => {
    live("radius", reach(radius, isAttack));
    document.querySelectorAll("[data-factor]").forEach((node) => { node.textContent = reach(radius * Number(node.dataset.factor), "up" in node.dataset); });
    const said = [];
    runs.forEach((run, k) => {
      const counts = tally(run, radius);
      live(`certified-${k}`, percentDown(counts.verified, run.n));
      live(`attacked-${k}`, percentDown(counts.broken, run.n));
      live(`n-verified-${k}`, count(counts.verified));
      live(`n-undecided-${k}`, count(counts.undecided));
      live(`n-broken-${k}`, count(counts.broken));
      const stack = document.querySelector(`[data-stack="${k}"]`);
      if (!stack) return;
      for (const name of ["verified", "undecided", "broken", "wrong"]) stack.querySelector(`.${name}`).style.width = `${(100 * counts[name]) / run.n}%`;
      const open = run.attack ? `${count(counts.undecided)} without a known breaking change` : `${count(counts.verified)} ${STATE_WORDS.verified}, ${count(counts.undecided)} undecided`;
      const words = `${open}, ${count(counts.broken)} ${STATE_WORDS.broken}${data.recourse ? "" : `, ${count(counts.wrong)} wrong as they stand`}`;
      stack.setAttribute("aria-label", `${run.name}: ${words}`);
      said.push(runs.length > 1 ? `${run.name}: ${words}` : words);
    });
    compareRuns();
    if (!data.withRadii) return;
    $("live").textContent = `At ${data.measure} ${reach(radius, isAttack)}: ${said.join(" · ")}.`;
    $("radius").setAttribute("aria-valuetext", reach(radius, isAttack));
    document.querySelectorAll('svg[data-chart="curve"]').forEach((svg) => {
      const x = Number(svg.dataset.left) + place(radius) * Number(svg.dataset.plot);
      const cursor = svg.querySelector(".cursor");
      cursor.setAttribute("x1", x);
      cursor.setAttribute("x2", x);
    });
  };
  const compareRuns = () => {
    if (!$("compared")) return;
    const only = [0, 0];
    let both = 0;
    let none = 0;
    for (const line of lines) {
      const proved = runs.map((_, k) => stateOf(line, k) === "verified");
      if (line.at.some((i) => i < 0)) continue;
      if (proved[0] && proved[1]) both += 1;
      else if (proved[0] || proved[1]) only[proved[0] ? 0 : 1] += 1;
      else if (stateOf(line, 0) !== "still" && stateOf(line, 1) !== "still") none += 1;
    }
    const more = only[1] - only[0];
    const [winner, loser] = more >= 0 ? [runs[1].name, runs[0].name] : [runs[0].name, runs[1].name];
    live("compare", more === 0 ? `${winner} and ${loser} prove equally many rows` : `${winner} proves ${counted(Math.abs(more), "row")} more than ${loser}`);
    live("only-0", count(only[0]));
    live("only-1", count(only[1]));
    live("by-both", count(both));
    live("by-none", count(none));
  };
  const setRadius = (value, from) => {
    if (!(value >= 0)) return;
    radius = value;
    if (from !== "slider" && $("radius")) $("radius").value = String(Math.round(1000 * place(radius)));
    if (from !== "number" && $("radius-number")) $("radius-number").value = String(towards(radius, isAttack ? 1 : -1, 6));
    showRadius();
    showTable(false);
  };

  const tip = $("tip");
  const showTip = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(6, Math.min(x + 14, window.innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + box.height + 24 > window.innerHeight ? y - box.height - 12 : y + 16}px`;
  };
  const hideTip = () => { tip.hidden = true; };
  document.querySelectorAll("[data-tip]").forEach((node) => {
    node.addEventListener("pointermove", (event) => showTip(node.dataset.tip, event.clientX, event.clientY));
    node.addEventListener("pointerleave", hideTip);
    node.addEventListener("focus", () => { const box = node.getBoundingClientRect(); showTip(node.dataset.tip, box.left, box.bottom - 12); });
    node.addEventListener("blur", hideTip);
  });
  const curveWords = (r) => {
    const lines = runs.map((run) => {
      const counts = tally(run, r);
      return `${runs.length > 1 ? `${run.name}: ` : ""}${run.attack ? "" : `certified ${percentDown(counts.verified, run.n)}, `}resisting ${percentUp(counts.verified + counts.undecided, run.n)}`;
    });
    return [`${data.measure} ${reach(r, isAttack)}`, ...lines].join("\n");
  };
  document.querySelectorAll('svg[data-chart="curve"]').forEach((svg) => {
    const hit = svg.querySelector(".hit");
    const at = (event) => { const box = hit.getBoundingClientRect(); return radiusAt(Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1)); };
    hit.addEventListener("pointermove", (event) => showTip(curveWords(at(event)), event.clientX, event.clientY));
    hit.addEventListener("pointerleave", hideTip);
    hit.addEventListener("click", (event) => setRadius(at(event)));
  });
  if (data.withRadii) {
    $("radius").addEventListener("input", (event) => setRadius(radiusAt(Number(event.target.value) / 1000), "slider"));
    $("radius-number").addEventListener("input", (event) => { if (event.target.value !== "") setRadius(Number(event.target.value), "number"); });
    const body = $("curve-table").tBodies[0];
    // The curve is counted out when its table is opened.
    const fill = () => {
      if (body.rows.length) return;
      for (let k = 0; k <= 20; k += 1) {
        const r = radiusAt(k / 20);
        const line = body.insertRow();
        line.append(element("td", reach(r, isAttack)));
        runs.forEach((run) => {
          const counts = tally(run, r);
          if (!run.attack) line.append(element("td", percentDown(counts.verified, run.n)));
          line.append(element("td", percentUp(counts.verified + counts.undecided, run.n)));
        });
      }
    };
    $("curve-table").closest("details").addEventListener("toggle", fill);
  }

  // On phones long sections fold; on paper and on wider screens the style sheet shows them all.
  const narrow = window.matchMedia("(max-width: 600px)");
  const folding = [...document.querySelectorAll("main > section:not(.hero):not(#curve)")];
  const setOpen = (section, isOpen) => {
    section.classList.toggle("folded", !isOpen);
    section.querySelector(".fold").setAttribute("aria-expanded", String(isOpen));
    window.dispatchEvent(new Event("resize"));
  };
  const setFolding = () => folding.forEach((section) => {
    const heading = section.querySelector("h2");
    const button = heading.querySelector(".fold");
    if (narrow.matches && !button) {
      const made = element("button");
      made.type = "button";
      made.className = "fold";
      made.append(...heading.childNodes);
      heading.append(made);
      made.addEventListener("click", () => setOpen(section, section.classList.contains("folded")));
      setOpen(section, false);
    } else if (!narrow.matches && button) {
      section.classList.remove("folded");
      heading.replaceChildren(...button.childNodes);
    }
  });
  const openTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const section = target && folding.find((one) => one.contains(target));
    if (!section || !section.querySelector(".fold")) return;
    setOpen(section, true);
    target.scrollIntoView();
  };
  setFolding();
  narrow.addEventListener("change", setFolding);
  // A link to the section that is shown already changes nothing in the address.
  document.querySelectorAll('a[href^="#"]').forEach((link) => link.addEventListener("click", () => setTimeout(openTarget)));
  addEventListener("hashchange", openTarget);
  openTarget();

  // On paper nobody can open what is folded, and claims hold within their domain only.
  addEventListener("beforeprint", () => document.querySelectorAll("details.domain").forEach((part) => { part.open = true; }));

  // The table: one line per row number, whichever runs know it.
  const known = new Map();
  runs.forEach((run, k) => run.row.forEach((row, i) => {
    if (!known.has(row)) known.set(row, runs.map(() => -1));
    known.get(row)[k] = i;
  }));
  const lines = [...known].map(([row, at]) => {
    const k = at.findIndex((i) => i >= 0);
    return { row, at, label: runs[k].label[at[k]], id: runs[k].id ? runs[k].id[at[k]] : "" };
  });
  // Names of changed features are put together when somebody searches.
  const wordsOf = (line) => {
    line.words ??= line.at.flatMap((i, run) => (i < 0 ? [] : changesOf(run, i).map((change) => change.name))).join("\n").toLowerCase();
    return line.words;
  };
  function changesOf(k, i) {
    const flat = runs[k].changes[i];
    const found = [];
    for (let j = 1; flat && j < flat.length; j += 4) found.push({ name: runs[k].features[flat[j]], original: flat[j + 1], changed: flat[j + 2], difference: flat[j + 3] });
    return found;
  }
  const value = (line, k, name) => (line.at[k] < 0 ? NaN : runs[k][name][line.at[k]]);
  const stateOf = (line, k) => (line.at[k] < 0 ? "" : state(runs[k], line.at[k], radius));
  const stateWords = (line, k) => (runs[k].attack && stateOf(line, k) === "undecided" ? "none found" : STATE_WORDS[stateOf(line, k)]);
  // An attack gives upper bounds only; everything else is known by what is proved.
  const bound = (line, k) => value(line, k, runs[k].attack ? "upper" : "lower");
  // A bound is never shown nearer than it was proved.
  const below = (value) => number(towards(value, -1));
  const above = (value) => number(towards(value, 1));
  const radiusText = (line, k) => {
    if (stateOf(line, k) === "still") return "–";
    if (runs[k].attack && line.at[k] >= 0 && value(line, k, "upper") > 0) return Number.isFinite(value(line, k, "upper")) ? `≤ ${above(value(line, k, "upper"))}` : "–";
    const [lower, upper] = [value(line, k, "lower"), value(line, k, "upper")];
    // Bounds of costs may differ in bits that nobody is shown.
    if (lower === upper || (Number.isFinite(upper) && upper - lower <= 1e-9 * upper) || Number.isNaN(lower)) return data.recourse && Number.isFinite(upper) ? above(upper) : below(lower);
    if (!Number.isFinite(upper)) return `≥ ${below(lower)}`;
    return lower === 0 ? `≤ ${above(upper)}` : `${below(lower)} … ${above(upper)}`;
  };
  const several = runs.length > 1;
  // Names break between their words, and nowhere else.
  const named = (name, tag = "span") => { const made = element(tag, undefined, "name"); for (const part of name.split(/(?<=[_/:=|])|(?<=\p{L}[.\-])(?=\p{L})/u)) made.append(part, document.createElement("wbr")); return made; };
  const largest = (line) => { const change = changesOf(0, line.at[0])[0]; return change ? [change.name, ` ${change.original} → ${change.changed}`] : ["–", ""]; };
  const columns = [{ name: "Row", key: (l) => l.row, cell: (l) => element("td", count(l.row)) }, { name: "Label", text: true, key: (l) => l.label, cell: (l) => element("td", l.label, "text") }];
  if (runs[0].id) columns.splice(1, 0, { name: runs[0].idName, text: true, key: (l) => l.id, cell: (l) => element("td", l.id, "text") });
  if (runs[0].eps) columns.push({ name: "Own eps", key: (l) => value(l, 0, "eps"), cell: (l) => element("td", number(value(l, 0, "eps"))) });
  runs.forEach((run, k) => {
    const prefix = several ? `${run.name}: ` : "";
    if (data.withRadii) columns.push({ name: `${prefix}${data.measure}`, key: (l) => bound(l, k), cell: (l) => element("td", radiusText(l, k)) });
    columns.push({ name: `${prefix}state`, text: true, key: (l) => stateOf(l, k), cell: (l) => { const cell = element("td", undefined, "text"); cell.append(element("span", stateWords(l, k), `pill ${stateOf(l, k)}`)); return cell; } });
    if (!several) {
      if (run.becomes) columns.push({ name: "Becomes", text: true, key: (l) => run.becomes[l.at[0]], cell: (l) => element("td", run.becomes[l.at[0]] || "–", "text") });
      columns.push({ name: "Changes", key: (l) => (run.changes[l.at[0]] ? run.changes[l.at[0]][0] : -1), cell: (l) => element("td", run.changes[l.at[0]] ? count(run.changes[l.at[0]][0]) : "–") });
      columns.push({ name: "Largest change", text: true, key: (l) => largest(l).join(" "), cell: (l) => { const cell = element("td", undefined, "text"); const [name, values] = largest(l); cell.append(named(name), element("span", values, "values")); return cell; } });
      columns.push({ name: "Time", key: (l) => run.seconds[l.at[0]], cell: (l) => { const s = run.seconds[l.at[0]]; return element("td", s < 1 ? `${number(s * 1e3, 3)} ms` : `${number(s, 3)} s`); } });
    }
  });
  if (several && data.withRadii && data.comparable) columns.push({ name: "Difference", key: (l) => bound(l, 1) - bound(l, 0), cell: (l) => element("td", number(bound(l, 1) - bound(l, 0))) });

  const table = $("all-rows");
  // What matters comes first: with two runs the rows that only one of them proves, and of those the
  // ones that differ most; with one run the rows that break first. Wrong rows and others come last.
  const RANKS = { broken: 0, undecided: 1, verified: 2, wrong: 3, still: 4, "": 5 };
  const importance = (line) => {
    const states = runs.map((_, k) => stateOf(line, k));
    if (!several) return [RANKS[states[0]] === 1 ? 0 : RANKS[states[0]], data.withRadii ? bound(line, 0) : RANKS[states[0]]];
    const isOne = (states[0] === "verified") !== (states[1] === "verified");
    const gain = data.withRadii && data.comparable ? Math.abs(bound(line, 1) - bound(line, 0)) : 0;
    return [isOne ? 0 : 1, Number.isNaN(gain) ? 0 : -gain];
  };
  let sorting = { column: -1, up: true };
  let page = 0;
  let chosen = lines;
  const heads = columns.map((column, index) => {
    const head = element("th", undefined, column.text ? "text" : "");
    head.scope = "col";
    const button = element("button", column.name);
    button.type = "button";
    button.addEventListener("click", () => { sorting = { column: index, up: sorting.column === index ? !sorting.up : true }; showTable(true); });
    head.append(button);
    return head;
  });
  const last = element("th", "");
  last.append(element("span", "Witness"));
  table.tHead.rows[0].replaceChildren(...heads, last);
  const compare = (a, b) => {
    if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
    return a === b || Number.isNaN(a) ? 0 : a < b ? -1 : 1;
  };
  const matches = (line) => {
    const wanted = $("state").value;
    if (wanted.startsWith("only-")) {
      const k = Number(wanted.slice(5));
      if (stateOf(line, k) !== "verified" || stateOf(line, 1 - k) === "verified") return false;
    } else if (wanted && !runs.some((_, k) => stateOf(line, k) === wanted)) return false;
    if ($("label") && $("label").value && line.label !== $("label").value) return false;
    const text = $("search").value.trim().toLowerCase();
    return !text || String(line.row) === text || line.id.toLowerCase() === text || line.label.toLowerCase() === text || wordsOf(line).includes(text);
  };
  function showTable(restart) {
    const sign = sorting.up ? 1 : -1;
    if (sorting.column < 0) {
      chosen = lines.filter(matches).map((line) => [importance(line), line]).sort((a, b) => compare(a[0][0], b[0][0]) || compare(a[0][1], b[0][1]) || a[1].row - b[1].row).map((pair) => pair[1]);
    } else {
      const { key } = columns[sorting.column];
      chosen = lines.filter(matches).map((line) => [key(line), line]).sort((a, b) => Number.isNaN(a[0]) - Number.isNaN(b[0]) || sign * compare(a[0], b[0]) || a[1].row - b[1].row).map((pair) => pair[1]);
    }
    const pages = Math.max(1, Math.ceil(chosen.length / PAGE_SIZE));
    page = restart ? 0 : Math.min(page, pages - 1);
    heads.forEach((head, index) => head.setAttribute("aria-sort", index !== sorting.column ? "none" : sorting.up ? "ascending" : "descending"));
    const shown = chosen.slice(page * PAGE_SIZE, (page + 1) * PAGE_SIZE).map(tableLine);
    if (!shown.length) { const empty = element("td", "No row fits the filter."); empty.colSpan = columns.length + 1; const line = element("tr"); line.append(empty); shown.push(line); }
    table.tBodies[0].replaceChildren(...shown);
    $("count").textContent = chosen.length === lines.length ? counted(lines.length, "row") : `${count(chosen.length)} of ${counted(lines.length, "row")}`;
    $("page").textContent = `Page ${count(page + 1)} of ${count(pages)}`;
    $("first").disabled = $("previous").disabled = page === 0;
    $("last").disabled = $("next").disabled = page === pages - 1;
  }
  const tableLine = (line) => {
    const made = element("tr");
    columns.forEach((column) => made.append(column.cell(line)));
    const cell = element("td");
    if (line.at.some((i, k) => i >= 0 && runs[k].changes[i])) {
      const button = element("button", "Show", "more");
      button.type = "button";
      button.setAttribute("aria-expanded", "false");
      button.setAttribute("aria-label", `Show what changes in row ${line.row}`);
      button.addEventListener("click", () => toggle(made, line, button));
      cell.append(button);
    }
    made.append(cell);
    return made;
  };
  const toggle = (made, line, button) => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    button.textContent = open ? "Show" : "Hide";
    if (open) { made.nextSibling.remove(); return; }
    const cell = element("td");
    cell.colSpan = columns.length + 1;
    const both = element("div", undefined, "both");
    line.at.forEach((i, k) => { if (i >= 0 && runs[k].changes[i]) both.append(witness(k, i)); });
    cell.append(both);
    const detail = element("tr", undefined, "detail");
    detail.append(cell);
    made.after(detail);
  };
  const witness = (k, i) => {
    const run = runs[k];
    const box = element("div");
    const flips = run.becomes && run.becomes[i] ? `; ${run.predicted[i]} becomes ${run.becomes[i]}` : "";
    box.append(element("p", `${several ? `${run.name}: ` : ""}${counted(run.changes[i][0], "feature")} change${run.changes[i][0] === 1 ? "s" : ""}${flips}`));
    if (data.pixels[k]) {
      const { shape, values, witness: changed } = data.pixels[k];
      box.append(picture(values, shape, i, "original"), picture(changed, shape, i, "changed"));
    }
    const list = element("table");
    list.createTHead().insertRow().append(...["feature", "original", "changed", "difference"].map((name) => element("th", name)));
    const body = list.createTBody();
    for (const change of changesOf(k, i)) {
      const line = body.insertRow();
      const marked = element("td");
      marked.append(element("mark", change.changed));
      line.append(named(change.name, "th"), element("td", change.original), marked, element("td", change.difference));
    }
    box.append(list);
    return box;
  };
  const picture = (encoded, [height, width], i, name) => {
    const canvas = element("canvas");
    [canvas.width, canvas.height] = [width, height];
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", name);
    const size = height * width;
    // Base64 has four characters for three bytes; only the part of this row is read.
    const from = Math.floor((i * size) / 3);
    const bytes = atob(encoded.slice(4 * from, 4 * Math.ceil(((i + 1) * size) / 3)));
    const image = new ImageData(width, height);
    for (let p = 0; p < size; p += 1) {
      const grey = bytes.charCodeAt(i * size - 3 * from + p);
      image.data.set([grey, grey, grey, 255], 4 * p);
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  };
  // A table that is wider than its place says so; the hint goes away at its end.
  const scrolls = document.querySelectorAll(".scroll");
  const hint = () => scrolls.forEach((box) => box.classList.toggle("more-right", box.scrollWidth - box.clientWidth - box.scrollLeft > 4));
  scrolls.forEach((box) => box.addEventListener("scroll", hint, { passive: true }));
  window.addEventListener("resize", hint);
  document.querySelectorAll("details").forEach((box) => box.addEventListener("toggle", hint));
  // The chosen rows as a file for spreadsheets; the page makes it itself, and asks nobody.
  const csvCell = (given) => {
    const text = given === null || given === undefined || Number.isNaN(given) ? "" : String(given);
    // No spreadsheet takes a text of the data for a formula.
    const safe = typeof given === "string" && /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const typed = (text) => (/^[−\d,.e]+$/.test(text) ? text.replaceAll(",", "").replaceAll("−", "-") : text);
  const changeWords = (k, i) => {
    if (!runs[k].changes[i]) return "";
    const said = changesOf(k, i).map((change) => `${change.name}: ${typed(change.original)} → ${typed(change.changed)}`);
    const more = runs[k].changes[i][0] - said.length;
    return said.join("; ") + (more > 0 ? `; … and ${more} more` : "");
  };
  const csvText = () => {
    const head = ["row", ...(runs[0].idName ? [runs[0].idName] : []), "label"];
    runs.forEach((run) => {
      const prefix = several ? `${run.name}: ` : "";
      head.push(...["state", "lower", "upper", "predicted", "becomes", "changes"].map((name) => prefix + name));
    });
    const body = chosen.map((line) => {
      const cells = [line.row, ...(runs[0].idName ? [line.id] : []), line.label];
      runs.forEach((run, k) => {
        const i = line.at[k];
        if (i < 0) cells.push("", "", "", "", "", "");
        else cells.push(stateWords(line, k), value(line, k, "lower"), value(line, k, "upper"), run.predicted ? run.predicted[i] : "", run.becomes ? run.becomes[i] : "", changeWords(k, i));
      });
      return cells;
    });
    return "\ufeff" + [head, ...body].map((cells) => cells.map(csvCell).join(",")).join("\r\n") + "\r\n";
  };
  $("download").addEventListener("click", () => {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([csvText()], { type: "text/csv;charset=utf-8" }));
    link.download = "rows.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  const turn = (to) => { page = to; showTable(false); };
  $("first").addEventListener("click", () => turn(0));
  $("previous").addEventListener("click", () => turn(page - 1));
  $("next").addEventListener("click", () => turn(page + 1));
  $("last").addEventListener("click", () => turn(Math.ceil(chosen.length / PAGE_SIZE) - 1));
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  for (const id of ["search", "state", "label"]) if ($(id)) $(id).addEventListener("input", () => showTable(true));

  const theme = $("theme");
  const isDark = () => document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && window.matchMedia("(prefers-color-scheme: dark)").matches);
  theme.setAttribute("aria-pressed", String(isDark()));
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    theme.setAttribute("aria-pressed", String(isDark()));
  });
  setRadius(data.start);
  hint();
})();
