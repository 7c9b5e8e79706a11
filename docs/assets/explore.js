/* The page learn/explore.html: three choices, two curves, one drawing, from the numbers in explore-data.js. Nothing is fetched. */
(function () {
  "use strict";
  const data = window.skipwayExplore, root = document.getElementById("explore");
  if (!data || !root) return;
  const W = 560, H = 240, LEFT = 62, RIGHT = 14, TOP = 14, BOTTOM = 40;

  function make(name, attributes, text) {
    const svg = ["svg", "path", "line", "text", "g", "title"].includes(name);
    const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
    if (text !== undefined) e.textContent = text;
    return e;
  }

  function choice(id, label, options, chosen) {
    const box = make("p"), select = make("select", { id: id });
    box.append(make("label", { for: id }, label), select);
    for (const [value, text] of options) {
      const option = make("option", { value: value }, text);
      option.selected = value === chosen;
      select.append(option);
    }
    select.addEventListener("change", show);
    form.append(box);
    return select;
  }

  function number(value) {
    if (value === 0) return "0";
    return value >= 0.001 && value < 10000 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
  }

  /* A logarithmic curve over the sublayers; zeros lie on the lower edge. */
  function chart(values, title, label) {
    const positive = values.filter((v) => v > 0).map(Math.log10);
    let low = Math.floor(Math.min(0, ...positive)), high = Math.ceil(Math.max(0, ...positive));
    if (high - low < 2) { low -= 1; high += 1; }
    const x = (k) => LEFT + (W - LEFT - RIGHT) * k / Math.max(1, values.length - 1);
    const y = (v) => H - BOTTOM - (H - TOP - BOTTOM) * ((v > 0 ? Math.log10(v) : low) - low) / (high - low);
    const svg = make("svg", { viewBox: "0 0 " + W + " " + H, role: "img", "aria-label": title });
    svg.append(make("title", {}, title));
    const step = Math.max(1, Math.ceil((high - low) / 6));
    for (let p = low; p <= high; p += step) {
      const at = y(Math.pow(10, p));
      svg.append(make("line", { x1: LEFT, x2: W - RIGHT, y1: at, y2: at, class: p === 0 ? "one" : "grid" }));
      svg.append(make("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, p === 0 ? "1" : "1e" + p));
    }
    const last = values.length - 1;
    for (const k of [0, Math.round(last / 2), last]) svg.append(make("text", { x: x(k), y: H - BOTTOM + 18, "text-anchor": k === last ? "end" : k ? "middle" : "start" }, String(k)));
    svg.append(make("text", { x: (LEFT + W - RIGHT) / 2, y: H - 4, "text-anchor": "middle" }, "sublayers before it"));
    svg.append(make("path", { class: "curve", d: values.map((v, k) => (k ? "L" : "M") + x(k).toFixed(1) + " " + y(v).toFixed(1)).join("") }));
    const figure = make("figure");
    figure.append(make("figcaption", {}, label), svg);
    return figure;
  }

  function verdict(rule, now) {
    const growth = now.stream[now.stream.length - 1] / now.stream[0], back = now.gradient[0];
    const word = back === 0 ? "does not arrive at all" : back < 0.1 ? "vanishes" : back > 10 ? "explodes" : "arrives";
    return "The stream ends " + number(growth) + " times as large as it began. At the first sublayer the gradient " + word + ": it is " + number(back) +
      " times as large as at the last.";
  }

  function show() {
    const now = data.curves[rule.value + " " + start.value + " " + depth.value];
    said.textContent = verdict(rule.value, now);
    plots.replaceChildren(
      chart(now.stream, "Size of the stream after each sublayer, from " + number(now.stream[0]) + " to " + number(now.stream[now.stream.length - 1]),
        "Size of the stream"),
      chart(now.gradient, "Size of the gradient at each sublayer over that at the last, " + number(now.gradient[0]) + " at the first",
        "Size of the gradient, over that at the last sublayer"));
    drawing.replaceChildren();
    if (data.drawings[rule.value]) drawing.innerHTML = data.drawings[rule.value];
    else drawing.append(make("p", {}, "There is no join to draw: each sublayer takes the place of the stream."));
    body.replaceChildren();
    now.stream.forEach(function (value, k) {
      const row = make("tr");
      row.append(make("td", {}, String(k)), make("td", {}, number(value)), make("td", {}, number(now.gradient[k])));
      body.append(row);
    });
  }

  const form = make("form"), said = make("p", { role: "status", "aria-live": "polite", class: "said" }), plots = make("div", { class: "plots" });
  const drawing = make("div", { class: "drawing", tabindex: "0", role: "group", "aria-label": "Drawing of two blocks" });
  form.addEventListener("submit", (event) => event.preventDefault());
  const depth = choice("explore-depth", "Blocks of two sublayers", data.depths.map((d) => [String(d), String(d)]), "12");
  const rule = choice("explore-rule", "Residual rule", Object.entries(data.rules), "pre_norm");
  const start = choice("explore-start", "Start of the matrices", Object.entries(data.starts), "unit");
  const details = make("details"), table = make("table"), head = make("thead"), row = make("tr"), body = make("tbody");
  row.append(make("th", { scope: "col" }, "sublayers before it"), make("th", { scope: "col" }, "stream"), make("th", { scope: "col" }, "gradient"));
  head.append(row);
  table.append(head, body);
  const scroll = make("div", { class: "numbers", tabindex: "0", role: "group", "aria-label": "Table of the numbers" });
  scroll.append(table);
  details.append(make("summary", {}, "The numbers"), scroll);
  root.append(form, said, plots, drawing, details);
  show();
})();
