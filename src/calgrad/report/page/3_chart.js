// Charts as inline SVG, drawn for the width they get, with values on hover and on the arrow keys.

const redraw = new WeakMap();
const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (!target.isConnected) { watcher.unobserve(target); continue; }
    const { draw, width } = redraw.get(target);
    if (Math.abs(target.clientWidth - width) > 1) draw();
  }
});

// A host that draws itself: paint(width) returns {picture, targets, mode, label}.
function chart(paint) {
  const host = el("div", { class: "chart" });
  const draw = () => {
    const width = Math.max(260, host.clientWidth || 560);
    redraw.set(host, { draw, width: host.clientWidth });
    const { picture, targets = [], mode = "near", label } = paint(width);
    host.replaceChildren(picture);
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", label);
    if (targets.length) hoverable(picture, targets, mode);
  };
  draw();
  watcher.observe(host);
  requestAnimationFrame(() => host.isConnected && Math.abs(host.clientWidth - redraw.get(host).width) > 1 && draw());
  return host;
}

// targets: {x, y, title, lines}. mode "x": the nearest column; "near": the nearest point.
function hoverable(picture, targets, mode) {
  const tip = document.getElementById("tip");
  const ring = svg("circle", { class: "ring", r: 8, visibility: "hidden" });
  picture.append(ring);
  picture.setAttribute("tabindex", "0");
  let active = -1;
  const show = (index, client) => {
    active = index;
    const target = targets[index];
    ring.setAttribute("cx", target.x); ring.setAttribute("cy", target.y); ring.setAttribute("visibility", "visible");
    tip.replaceChildren(el("b", {}, target.title), ...target.lines.map((line) => el("div", {}, line)));
    tip.hidden = false;
    const box = picture.getBoundingClientRect();
    const scale = box.width / picture.viewBox.baseVal.width;
    const [cx, cy] = client || [box.left + target.x * scale, box.top + target.y * scale];
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(8, Math.min(room, cx + 16))}px`;
    tip.style.top = `${Math.max(8, cy - tip.offsetHeight - 14)}px`;
  };
  const hide = () => { active = -1; tip.hidden = true; ring.setAttribute("visibility", "hidden"); };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    const scale = picture.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
    const far = (t) => Math.abs(t.x - x) + (mode === "x" ? 0.001 : 1) * Math.abs(t.y - y);
    show(targets.reduce((best, t, i) => (far(t) < far(targets[best]) ? i : best), 0), [event.clientX, event.clientY]);
  });
  picture.addEventListener("pointerleave", hide);
  picture.addEventListener("blur", hide);
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); show(active < 0 ? (step > 0 ? 0 : targets.length - 1) : (active + step + targets.length) % targets.length); }
    else if (event.key === "Escape") hide();
  });
}

const scale = (from, to, start, end) => (x) => start + ((x - from) / (to - from)) * (end - start);
const path = (pairs) => pairs.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("");

function ticksOf(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((m) => m * power >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) ticks.push(i * step);
  return { ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

function xAxis(x, low, high, y, { label, scaleBy = 1, count = 5, top, whole } = {}) {
  // Of epochs, whole ones only.
  const { ticks, digits } = ticksOf(low * scaleBy, high * scaleBy, whole ? Math.max(1, Math.min(count, Math.floor(high - low))) : count);
  return svg("g", {}, ticks.map((t) => [
    top !== undefined && svg("line", { class: "gridline", x1: x(t / scaleBy), x2: x(t / scaleBy), y1: top, y2: y }),
    svg("text", { class: "soft", x: x(t / scaleBy), y: y + 17, "text-anchor": "middle" }, t.toFixed(digits))]),
  svg("line", { class: "axis", x1: x(low), x2: x(high), y1: y, y2: y }),
  label && svg("text", { x: (x(low) + x(high)) / 2, y: y + 36, "text-anchor": "middle" }, label));
}

function yAxis(y, low, high, left, right, { label, scaleBy = 1, count = 5 } = {}) {
  const { ticks, digits } = ticksOf(low * scaleBy, high * scaleBy, count);
  const middle = (y(low) + y(high)) / 2;
  return svg("g", {}, ticks.map((t) => [
    svg("line", { class: "gridline", x1: left, x2: right, y1: y(t / scaleBy), y2: y(t / scaleBy) }),
    svg("text", { class: "soft", x: left - 7, y: y(t / scaleBy) + 4, "text-anchor": "end" }, t.toFixed(digits))]),
  label && svg("text", { x: left - 40, y: middle, transform: `rotate(-90 ${left - 40} ${middle})`, "text-anchor": "middle" }, label));
}
