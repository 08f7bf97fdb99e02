// State, and one way to change it: update(changes) draws the sections anew. Open details, scroll position and focus are kept.

let DOC = JSON.parse(document.getElementById("data").textContent);
const STATE = {
  model: 0, bins: 15, scheme: "width", part: "all", zoom: false, view: "as trained", selected: new Set(),
  classOrder: { column: 4, down: true }, fixOrder: { column: 4, down: false }, modelOrder: { column: 4, down: false },
};

const SECTIONS = { believe: ["Believe it?", believe], where: ["Where wrong?", where], fixes: ["Fix", fixes], comparison: ["Compare", comparison] };

function start() {
  STATE.selected = new Set(DOC.models.map((_, i) => i).slice(0, 8));
  const chosen = remembered();
  document.documentElement.dataset.theme = chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => { if (!remembered()) document.documentElement.dataset.theme = event.matches ? "dark" : "light"; });
  const page = document.getElementById("page");
  page.append(
    el("header", { class: "bar" }, el("div", {}, el("h1", {}, DOC.title), DOC.live && el("span", { class: "live", id: "live", role: "status" }, "● live"),
      el("nav", { "aria-label": "Questions" }, Object.entries(SECTIONS).map(([id, [text]]) => el("a", { href: `#${id}` }, text))),
      el("button", { type: "button", class: "plain no-print", id: "theme", onclick: toggleTheme, "aria-label": "Switch between light and dark" }, "◐"))),
    el("main", {}, Object.keys(SECTIONS).map((id) => el("section", { id }))), el("footer", {}, el("div", {}, glossary())));
  update({});
  if (DOC.live) follow();
}

function update(changes, goTo) {
  Object.assign(STATE, changes);
  STATE.model = Math.max(0, Math.min(STATE.model, DOC.models.length - 1));
  if (DOC.losses && !DOC.losses.rows.some((r) => r.view === STATE.view)) STATE.view = DOC.losses.rows[0].view;
  const focus = whereFocusIs();
  for (const [id, [, render]] of Object.entries(SECTIONS)) {
    const section = document.getElementById(id);
    const open = [...section.querySelectorAll("details")].map((d) => d.open);
    section.replaceChildren(...[render()].flat(Infinity).filter((n) => n instanceof Node));
    section.hidden = !section.childNodes.length;
    section.querySelectorAll("details").forEach((d, i) => { d.open = open[i] || false; });
  }
  document.getElementById("tip").hidden = true;
  if (goTo) document.getElementById(goTo).scrollIntoView({ block: "start" });
  else restoreFocus(focus);
}

// Sections are drawn anew, so the pressed button is another element afterwards: find it by its place.
function whereFocusIs() {
  const active = document.activeElement, section = active && active.closest("section");
  if (!section) return null;
  return { id: section.id, index: [...section.querySelectorAll("button, select, input, summary, [tabindex]")].indexOf(active), label: active.textContent };
}
function restoreFocus(focus) {
  if (!focus || focus.index < 0) return;
  const all = [...document.getElementById(focus.id).querySelectorAll("button, select, input, summary, [tabindex]")];
  const same = all[focus.index] && all[focus.index].textContent === focus.label ? all[focus.index] : all.find((node) => node.textContent === focus.label) || all[focus.index];
  if (same) same.focus({ preventScroll: true });
}

function remembered() { try { return localStorage.getItem("calgrad-theme"); } catch { return null; } }
function toggleTheme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try { localStorage.setItem("calgrad-theme", next); } catch { /* a page opened from disk may have no storage */ }
}

function glossary() {
  const words = [
    ["Confidence", "the largest probability that the model gives to a class; “it says 90 %”."],
    ["Calibrated", "among the samples on which it says 90 %, it is right on 90 %."],
    ["ECE", "expected calibration error: samples are put into bins by confidence (15 of equal width unless switched); the mean distance between confidence and accuracy over the bins, weighted by samples."],
    ["By chance", "even a perfectly calibrated model shows an ECE above zero on finitely many samples; this is how much, given these confidences. An ECE below the 95 % point is no evidence against calibration."],
    ["NLL, Brier score", "proper scores: they reward calibration and sharpness together, without bins. A repair that lowers the ECE but raises them has thrown information away."],
    ["Interval", "95 %, from resampling the test samples; of an accuracy in a bin: Wilson’s."],
  ];
  return [el("details", {}, el("summary", {}, "What the words mean"), el("dl", {}, words.map(([t, d]) => [el("dt", {}, t), el("dd", {}, d)]))), el("p", {}, DOC.footer)];
}

// While a training goes on: ask for news, and draw them into the page as it stands.
async function follow() {
  const live = document.getElementById("live");
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, DOC.live.seconds * 1000));
    try {
      const answer = await fetch(`data.json?after=${DOC.live.version}`, { cache: "no-store" });
      live.classList.remove("lost");
      live.textContent = "● live";
      if (answer.status === 200) {
        const names = DOC.models.map((m) => m.name);
        const fresh = await answer.json();
        STATE.selected = new Set(fresh.models.map((m, i) => i).filter((i) => !names.includes(fresh.models[i].name) || STATE.selected.has(names.indexOf(fresh.models[i].name))));
        DOC = fresh;
        update({});
      }
    } catch { live.classList.add("lost"); live.textContent = "● connection lost"; }
  }
}

start();
