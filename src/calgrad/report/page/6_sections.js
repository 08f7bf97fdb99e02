// The four questions, in the order a reader asks them. Each function returns the elements of one section for the state it is given.

const modelAt = () => DOC.models[STATE.model];
const partOf = (model) => model.parts.find((p) => p.key === STATE.part) || model.parts[0];
const floorOf = (part, scheme, bins, data) => {
  if (part.floors) return part.floors[scheme][bins];
  return data.bins.reduce((sum, b) => sum + Math.sqrt((2 * Math.max(b.v, 0)) / Math.PI), 0) / data.total; // the closed form, for a class
};
const SCHEME_WORDS = { width: "equal width", mass: "equal mass", smooth: "smooth" };

function icon(level) {
  const paths = { yes: "M5 13l5 5L20 7", nearly: "M4 10q4-4 8 0t8 0M4 16q4-4 8 0t8 0", no: "M6 6l12 12M18 6L6 18", unknown: "M9 9a3 3 0 1 1 4 3q-1 .6-1 2.4M12 18v.5" };
  return svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" },
    svg("path", { d: paths[level] || paths.unknown, fill: "none", stroke: "currentColor", "stroke-width": 3, "stroke-linecap": "round", "stroke-linejoin": "round" }));
}

function modelChooser() {
  if (DOC.models.length < 2) return null;
  const options = DOC.models.map((m, i) => [i, short(m.name, 34)]);
  const pick = (i) => update({ model: Number(i), part: "all" });
  return el("div", { class: "controls" }, DOC.models.length > 5
    ? dropdown("Model", options.map(([i, name]) => [String(i), name]), String(STATE.model), pick) : choice("Model", options, STATE.model, pick));
}

// ----------------------------------------------------------------------------------------------------- 1: can I believe it

function believe() {
  if (!DOC.models.length) return [el("h2", {}, "No finished run yet"), el("p", { class: "note" }, "The answers appear here when the first run has made its test predictions. Until then: the training curves below.")];
  const model = modelAt(), { verdict, numbers } = model;
  const tile = (title, value, note) => el("div", {}, el("dt", {}, title), el("dd", {}, value, note && el("small", {}, note)));
  const withInterval = (e, f) => (Number.isFinite(e.low) ? `95 %: ${f(e.low)} to ${f(e.high)}` : null);
  const pc = (digits) => (x) => (100 * x).toFixed(digits);
  return [
    el("h2", {}, "Can I believe its confidence?"),
    modelChooser(),
    el("div", { class: `verdict ${verdict.level}` }, el("p", { class: "head" }, icon(verdict.level), el("span", {}, verdict.headline)),
      verdict.sentences.map((text) => el("p", {}, text))),
    el("dl", { class: "tiles" },
      tile("says, on average", percent(numbers.confidence.value)), tile("is right", percent(numbers.accuracy.value), withInterval(numbers.accuracy, pc(2))),
      tile("ECE, 15 bins", percent(numbers.ece.value), withInterval(numbers.ece, pc(2))),
      tile("chance alone shows", percent(numbers.floor.mean), `95 %: below ${pc(2)(numbers.floor.high)}`),
      tile("p, if calibrated", pValue(numbers.p_value)),
      tile("NLL", fixed(numbers.nll.value, 4), withInterval(numbers.nll, (x) => x.toFixed(3))), tile("Brier score", fixed(numbers.brier.value, 4), withInterval(numbers.brier, (x) => x.toFixed(3))),
      tile("smooth ECE", percent(numbers.smooth_ece.value), withInterval(numbers.smooth_ece, pc(2)))),
    DOC.models.length > 1 && el("figure", {}, el("h3", {}, "All models at a glance"), intervalChart(eceRows(), { label: "ECE (%), with its 95 % interval", scaleBy: 100, floor: true }),
      el("figcaption", {}, "Grey: what a perfectly calibrated model with the same confidences would show by chance, 95 times in 100. A dot inside its grey bar cannot be told from calibrated.")),
  ];
}

const eceRows = () => DOC.models.map((m, i) => ({ name: m.name, value: m.numbers.ece.value, low: m.numbers.ece.low ?? m.numbers.ece.value, high: m.numbers.ece.high ?? m.numbers.ece.value, floor: m.numbers.floor.high, style: i,
  lines: [`ECE ${percent(m.numbers.ece.value)}`, `by chance up to ${percent(m.numbers.floor.high)}`, `p ${pValue(m.numbers.p_value)}`] }));

// ------------------------------------------------------------------------------------------------------ 2: where is it wrong

function pictureControls() {
  return [choice("Method", Object.entries(SCHEME_WORDS), STATE.scheme, (scheme) => update({ scheme })),
    STATE.scheme !== "smooth" && choice("Bins", DOC.bins.map((b) => [b, b]), STATE.bins, (bins) => update({ bins })),
    choice("Axes", [[false, "0 to 100 %"], [true, "where samples are"]], STATE.zoom, (zoom) => update({ zoom }))];
}

function where() {
  if (!DOC.models.length) return null;
  const model = modelAt(), part = partOf(model);
  const parts = model.parts.map((p) => [p.key, short(p.name, 40)]);
  const data = binsOf(part, STATE.scheme === "smooth" ? "width" : STATE.scheme, STATE.bins);
  const corner = (shown) => {
    if (STATE.scheme === "smooth") return [part.smooth.error !== null && `smooth ECE ${percent(part.smooth.error)}`, many(shown.total, "sample")].filter(Boolean);
    const own = STATE.scheme === "width" && STATE.bins === 15 && part.key === "all" ? model.numbers.ece : null;
    return [`ECE ${percent(shown.ece)}`, own && Number.isFinite(own.low) && `95 % interval ${range(own.low, own.high)} %`,
      `calibrated would show ${percent(floorOf(part, STATE.scheme, STATE.bins, shown))}`, many(shown.total, "sample")].filter(Boolean);
  };
  return [
    el("h2", {}, "Where is it wrong?"), DOC.models.length > 1 && el("p", { class: "soft" }, model.name),
    el("div", { class: "controls" }, pictureControls(), parts.length > 1 && dropdown("Samples", parts, part.key, (key) => update({ part: key }))),
    el("div", { class: "split" },
      el("figure", { id: "diagram" }, reliabilityChart(part, { ...STATE, corner }), diagramKey(),
        el("details", {}, el("summary", {}, "The numbers behind the diagram"), binTable(data))),
      el("div", {}, el("h3", {}, "The bins that matter most"), worstBins(data), el("h3", {}, "Confidence when right, and when wrong"), el("figure", {}, histogramChart(part)))),
    model.class_rows.length > 0 && [el("h3", {}, "The classes that are furthest off"), classTable(model)],
    mistakes(model),
    gradientFigure(model),
  ];
}

function diagramKey() {
  const item = (picture, text) => el("li", {}, svg("svg", { viewBox: "0 0 22 14", "aria-hidden": "true" }, picture), text);
  return el("ul", { class: "key" },
    item([svg("line", { class: "whisker", x1: 11, x2: 11, y1: 0, y2: 14 }), svg("circle", { class: "point", cx: 11, cy: 7, r: 4 })], "accuracy, 95 % interval"),
    item([svg("defs", {}, stripes("keyo", "var(--over)")), svg("rect", { width: 22, height: 14, fill: "url(#keyo)" })], "over-confident"),
    item(svg("rect", { class: "under gap", width: 22, height: 14 }), "under-confident"),
    item(svg("rect", { class: "band", width: 22, height: 14 }), "a calibrated model, 95 times in 100"));
}

function worstBins(data) {
  const worst = [...data.bins].sort((a, b) => b.share - a.share).slice(0, 3).filter((b) => b.share > 0);
  return el("ul", { class: "findings" }, worst.map((b) => {
    const outside = b.right < b.band[0] || b.right > b.band[1];
    return el("li", { class: b.gap > 0 ? "over-text" : "under-text" }, el("b", {}, `Confidence ${range(b.low, b.high, b.high - b.low < 0.02 ? 2 : 1)} %: `),
      `${many(b.n, "sample")}; it says ${percent(b.says, 1)} and is right ${percent(b.right, 1)}, `,
      `${b.gap > 0 ? "over" : "under"}-confident by ${Math.abs(100 * b.gap).toFixed(1)} points. `,
      el("span", { class: "soft" }, `${Math.round((100 * b.share) / data.ece)} % of the ECE; ${outside ? "more than chance." : "within chance."}`));
  }));
}

const binTable = (data) => plainTable("Bins that hold samples", ["confidence (%)", "samples", "says (%)", "right (%)", "95 % interval", "gap (points)"],
  data.bins.map((b) => [range(b.low, b.high, 1), grouped(b.n), fixed(100 * b.says, 1), fixed(100 * b.right, 1), range(...b.interval, 1), points(b.gap)]));

function classTable(model) {
  const columns = [
    { title: "when it says", key: (r) => r.name, show: (r) => (model.parts.some((p) => p.key === r.key) ? el("button", { type: "button", class: "link", onclick: () => update({ part: r.key }, "diagram") }, r.name) : r.name) },
    { title: "samples", key: (r) => r.n, show: (r) => grouped(r.n) },
    { title: "confidence (%)", key: (r) => r.says, show: (r) => fixed(100 * r.says, 1) },
    { title: "right (%)", key: (r) => r.right, show: (r) => fixed(100 * r.right, 1) },
    { title: "gap (points)", key: (r) => Math.abs(r.gap), show: (r) => points(r.gap), hint: "confidence minus accuracy: positive is over-confident" },
    { title: "p", key: (r) => r.p_value, show: (r) => pValue(r.p_value), hint: "chance of such a gap if calibrated, adjusted for the number of classes (Holm)" },
    { title: "classwise ECE (%)", key: (r) => r.ece, show: (r) => fixed(100 * r.ece, 2), hint: "error of the probability of this class over all samples" },
  ];
  const note = model.classes > model.class_rows.length ? ` The ${model.class_rows.length} furthest off of ${model.classes} classes.` : "";
  return [sortableTable(`By predicted class; a class's name shows its diagram.${note}`, columns, model.class_rows, STATE.classOrder, (r) => (r.key === STATE.part ? { class: "chosen" } : {})),
    el("p", { class: "small soft" }, "p: the chance of such a gap if the model were calibrated, adjusted for the number of classes (Holm). Classwise ECE: the error of this class's probability over all samples.")];
}

function mistakes(model) {
  if (!model.mistakes.length) return el("p", { class: "soft" }, "It made no mistake on these samples.");
  return [el("h3", {}, "The most over-confident mistakes"),
    el("ol", { class: "mistakes" }, model.mistakes.map((m) => el("li", {}, m.image && el("img", { src: m.image, alt: `sample ${m.id}`, width: 64, height: 64 }),
      el("div", {}, el("b", {}, m.id), el("br"), `says ${m.prediction}, ${nearOne(m.confidence)}`, el("br"), `is ${m.label}, given ${nearZero(m.p_true)}`))))];
}

function gradientFigure(model) {
  if (!model.gradients) return null;
  const g = model.gradients;
  return el("figure", {}, el("h3", {}, "Gradient norm against Brier score"),
    lineChart(g.series.map((s, i) => ({ ...s, index: i })), { xLabel: "Brier score of the sample", yLabel: "median gradient norm", digits: 3, zero: true, xName: "Brier" }),
    el("figcaption", {}, g.caption));
}

// --------------------------------------------------------------------------------------------------------- 3: what fixes it

function fixes() {
  if (!DOC.models.length) return null;
  const model = modelAt(), repairs = model.repairs;
  if (!repairs) return [el("h2", {}, "What fixes it?"), el("p", { class: "note" }, model.no_repairs || "Post-hoc methods were not compared.")];
  const columns = [
    { title: "method", key: (r) => r.name, show: (r) => [r.name, r.best && el("span", { class: "tag good" }, "recommended"), r.detail && el("span", { class: "soft small" }, ` ${r.detail}`)] },
    { title: "ECE (%)", key: (r) => r.ece.value, show: (r) => fixed(100 * r.ece.value, 2) },
    { title: "by chance", key: (r) => r.floor, show: (r) => fixed(100 * r.floor, 2), hint: "the ECE that a calibrated model would show" },
    { title: "p (calibrated)", key: (r) => r.p_calibrated, show: (r) => pValue(r.p_calibrated) },
    { title: "NLL", key: (r) => r.nll.value, show: (r) => fixed(r.nll.value, 4) },
    { title: "NLL change, 95 %", key: (r) => r.change && r.change.value, show: (r) => (r.change ? `${fixed(r.change.low, 4)} to ${fixed(r.change.high, 4)}`.replaceAll("-", "−") : "–") },
    { title: "p (change)", key: (r) => r.change && r.change.p_value, show: (r) => (r.change ? pValue(r.change.p_value) : "–"), hint: "paired test against doing nothing, Holm-adjusted" },
    { title: "Brier", key: (r) => r.brier.value, show: (r) => fixed(r.brier.value, 4) },
    { title: "accuracy (%)", key: (r) => r.accuracy.value, show: (r) => fixed(100 * r.accuracy.value, 2) },
  ];
  const interval = (key, extra) => repairs.rows.map((r) => ({ name: r.name, value: r[key].value, low: r[key].low, high: r[key].high, floor: key === "ece" ? r.floor_high : 0, style: r.best ? 2 : 0, ...extra }));
  const code = el("pre", { tabindex: "0", "aria-label": "code that applies the recommended method" }, repairs.code);
  const copied = el("span", { class: "soft small", role: "status" });
  const copy = el("button", { type: "button", class: "plain no-print", onclick: () => copyText(repairs.code, code, copied) }, "Copy");
  return [
    el("h2", {}, "What fixes it?"), DOC.models.length > 1 && el("p", { class: "soft" }, model.name),
    el("p", {}, el("b", {}, repairs.headline)), el("p", { class: "soft" }, repairs.how),
    el("div", { class: "copy" }, el("span", {}, repairs.code_title), el("span", {}, copied, " ", copy)), code,
    el("div", { class: "duo" },
      el("figure", {}, intervalChart(interval("ece"), { label: "ECE after (%), 95 % interval", scaleBy: 100, floor: true }), el("figcaption", {}, "Grey: by chance, 95 times in 100.")),
      el("figure", {}, intervalChart(interval("nll"), { label: "NLL after, 95 % interval", digits: 4 }), el("figcaption", {}, "The NLL also sees what calibration gains or loses in sharpness."))),
    sortableTable("Post-hoc methods on held-out samples", columns, repairs.rows, STATE.fixOrder, (r) => (r.best ? { class: "best" } : {})),
    repairs.curves.length > 1 && [el("h3", {}, "Before and after"),
      el("div", { class: repairs.curves.length === 3 ? "trio" : "duo" }, repairs.curves.map((part) => el("figure", {}, el("b", {}, part.title),
        reliabilityChart(part, { scheme: STATE.scheme, bins: STATE.bins, zoom: STATE.zoom, corner: (d) => (STATE.scheme === "smooth" ? [`smooth ECE ${percent(part.smooth.error)}`] : [`ECE ${percent(d.ece)}`, `calibrated would show ${percent(floorOf(part, STATE.scheme, STATE.bins, d))}`]) }))))],
    repairs.notes.length > 0 && el("details", {}, el("summary", {}, "Notes of the fits"), el("ul", { class: "small" }, repairs.notes.map((n) => el("li", {}, n)))),
  ];
}

function copyText(text, node, status) {
  const byHand = () => { getSelection().selectAllChildren(node); status.textContent = "Selected: press Ctrl+C"; };
  if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(text).then(() => { status.textContent = "Copied"; }, byHand);
  else byHand();
}

// --------------------------------------------------------------------------------------------------- 4: how models compare

function comparison() {
  const out = [DOC.models.length > 0 && el("h2", {}, DOC.models.length > 1 ? "How do the models compare?" : "More about this model")];
  const chosen = DOC.models.map((m, i) => i).filter((i) => STATE.selected.has(i));
  if (DOC.models.length > 1) out.push(modelTable(), DOC.tests_note && el("p", { class: "small soft" }, DOC.tests_note));
  const entries = chosen.map((i) => ({ part: DOC.models[i].parts[0], index: i, name: DOC.models[i].name }));
  if (DOC.models.length > 1) out.push(el("div", { class: "controls" }, pictureControls()),
    el("div", { class: "split" }, entries.length ? el("figure", { id: "overlay" }, overlayChart(entries, STATE)) : el("p", { class: "note" }, "Tick a model to see its diagram."),
      el("div", {}, modelBoxes(), el("p", { class: "small soft" }, "Below the dashed line a model is over-confident, above it under-confident. The thin lines are 95 % intervals of the accuracy in a bin."))));
  if (entries.length) out.push(el("h3", {}, "Which predictions to act on: risk against coverage"),
    el("figure", {}, lineChart(chosen.map((i) => ({ ...DOC.models[i].coverage, name: DOC.models[i].name, index: i })), { xLabel: "coverage: the most confident share (%)", yLabel: "error among them (%)", scaleX: 100, scaleY: 100, zero: true, height: 220, xName: "coverage", start: 0 }),
      el("figcaption", {}, `Area under the curve: ${chosen.map((i) => `${DOC.models[i].name} ${percent(DOC.models[i].numbers.aurc.value)}`).join("; ")}. Smaller is better; a random order gives the error rate.`)));
  out.push(training());
  out.push(lossComparison(), DOC.problems.length > 0 && el("details", { open: true }, el("summary", {}, "What could not be read"), el("ul", { class: "small" }, DOC.problems.map((p) => el("li", {}, p)))));
  return out;
}

function training() {
  if (!DOC.runs.length) return null;
  const place = (run, i) => { const at = DOC.models.findIndex((m) => m.name === run.name); return at < 0 ? DOC.models.length + i : at; };
  const runs = DOC.runs.map((run, i) => ({ ...run, index: place(run, i) })).filter((run) => run.index >= DOC.models.length || STATE.selected.has(run.index));
  const open = DOC.runs.filter((run) => run.status !== "finished");
  return [el("h3", {}, "Over training, on validation"),
    open.length > 0 && plainTable("Runs that are not finished", ["run", "status", "epochs"], open.map((run) => [run.name, run.status, `${run.done} of ${run.epochs ?? "?"}`])),
    el("div", { class: "trio" }, [["ece", "ECE (%)", 100, 2, true], ["nll", "NLL", 1, 3, false], ["accuracy", "accuracy (%)", 100, 1, false]].map(([key, label, by, digits, zero]) => {
      const series = runs.filter((run) => run.history[key]).map((run) => ({ name: run.name, index: run.index, x: run.history.epoch, y: run.history[key] }));
      return series.length > 0 && el("figure", {}, lineChart(series, { xLabel: "epoch", yLabel: label, scaleY: by, digits, zero, whole: true }));
    }))];
}

function modelBoxes() {
  return el("fieldset", { class: "models" }, el("legend", { class: "small soft" }, "In the pictures:"), DOC.models.map((m, i) => el("label", {},
    el("input", { type: "checkbox", checked: STATE.selected.has(i), onchange: (event) => { event.target.checked ? STATE.selected.add(i) : STATE.selected.delete(i); update({}); } }), swatch(i), m.name)));
}

function modelTable() {
  const n = (key) => (m) => m.numbers[key].value;
  const columns = [
    { title: "model", key: (m) => m.name, show: (m) => [el("button", { type: "button", class: "link", onclick: () => update({ model: DOC.models.indexOf(m), part: "all" }, "believe") }, m.name), el("span", { class: `tag ${{ yes: "good", no: "bad" }[m.verdict.level] || ""}` }, m.verdict.tag)] },
    { title: "accuracy (%)", key: n("accuracy"), show: (m) => fixed(100 * n("accuracy")(m), 2) },
    { title: "ECE (%)", key: n("ece"), show: (m) => fixed(100 * n("ece")(m), 2) },
    { title: "by chance", key: (m) => m.numbers.floor.mean, show: (m) => fixed(100 * m.numbers.floor.mean, 2), hint: "the ECE that a calibrated model would show" },
    { title: "NLL", key: n("nll"), show: (m) => fixed(n("nll")(m), 4) }, { title: "Brier", key: n("brier"), show: (m) => fixed(n("brier")(m), 4) },
    { title: "AdaECE (%)", key: n("adaptive_ece"), show: (m) => fixed(100 * n("adaptive_ece")(m), 2) }, { title: "cwECE (%)", key: n("classwise_ece"), show: (m) => fixed(100 * n("classwise_ece")(m), 2) },
    { title: "AURC (%)", key: n("aurc"), show: (m) => fixed(100 * n("aurc")(m), 2) },
  ];
  if (DOC.models.some((m) => m.n !== DOC.models[0].n)) columns.push({ title: "samples", key: (m) => m.n, show: (m) => grouped(m.n) });
  if (DOC.models.some((m) => m.against)) for (const [key, title] of [["ece", "p (ECE)"], ["nll", "p (NLL)"]])
    columns.push({ title, key: (m) => m.against && m.against[key].p_value, show: (m) => (m.against ? pValue(m.against[key].p_value) : "–") });
  return sortableTable("A click on a column sorts; a click on a model shows its answers", columns, DOC.models, STATE.modelOrder, (m) => (m === modelAt() ? { class: "chosen" } : {}));
}

function lossComparison() {
  if (!DOC.losses) return null;
  const views = [...new Set(DOC.losses.rows.map((r) => r.view))];
  const rows = (key) => DOC.losses.rows.filter((r) => r.view === STATE.view).map((r) => ({ name: r.loss, value: r[key].value, low: r[key].low, high: r[key].high, floor: r.floor, style: views.indexOf(r.view) }));
  return [el("h3", {}, "Losses, pooled over seeds"), el("p", { class: "soft" }, DOC.losses.caption),
    el("div", { class: "controls" }, choice("View", views.map((v) => [v, v]), STATE.view, (view) => update({ view }))),
    el("div", { class: "trio" }, el("figure", {}, intervalChart(rows("ece"), { label: "ECE (%)", scaleBy: 100, floor: true })), el("figure", {}, intervalChart(rows("nll"), { label: "NLL", digits: 4 })), el("figure", {}, intervalChart(rows("brier"), { label: "Brier score", digits: 4 })))];
}
