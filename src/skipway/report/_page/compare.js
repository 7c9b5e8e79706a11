// Figures of a comparison: a place on each is chosen by pointer or arrow keys and read in its legend; the boxes choose the variants that are drawn.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("figure[data-x]").forEach((figure) => {
    const x = figure.dataset.x.split(" ").map(Number);
    const names = figure.dataset.names.split("\n");
    const svg = figure.querySelector("svg.chart");
    const cursor = figure.querySelector(".cursor");
    const place = figure.querySelector(".place");
    const arms = [...figure.querySelectorAll(".legend li")].map((item) => ({
      item, name: item.querySelector(".who").textContent, value: item.querySelector(".value"), values: item.dataset.values.split("\n"),
    }));
    let chosen = -1;
    const choose = (at) => {
      if (at === chosen) return;
      chosen = at;
      cursor.setAttribute("visibility", at < 0 ? "hidden" : "visible");
      if (at >= 0) cursor.setAttribute("d", cursor.getAttribute("d").replace(/^M[\d.]+/, `M${x[at]}`));
      place.textContent = at < 0 ? "" : names[at];
      arms.forEach((arm) => { arm.value.textContent = at < 0 ? "" : arm.values[at]; });
      const shown = arms.filter((arm) => at >= 0 && arm.values[at] && !arm.item.classList.contains("off"));
      tell(at, `${names[at]}: ${shown.map((arm) => `${arm.name} ${arm.values[at]}`).join(", ") || "nothing is shown"}`);
    };
    const show = () => {
      const numbers = figure.closest("section").querySelector("details.numbers");
      if (!numbers) return;
      numbers.open = true;
      numbers.scrollIntoView({ block: "nearest" });
    };
    const tell = slider(svg, x, figure.querySelector("h3").textContent, "no place is chosen", () => chosen, choose, show);
  });

  const boxes = [...document.querySelectorAll(".arms input")];
  const all = document.querySelector("[data-arms]");
  const draw = () => {
    boxes.forEach((box) => document.querySelectorAll(`g[data-arm="${box.dataset.arm}"], li[data-arm="${box.dataset.arm}"]`).forEach((one) => {
      one.classList.toggle("off", !box.checked);
    }));
    all.textContent = boxes.some((box) => box.checked) ? "Hide all" : "Show all";
  };
  boxes.forEach((box) => box.addEventListener("change", draw));
  all?.addEventListener("click", () => {
    const on = !boxes.some((box) => box.checked);
    boxes.forEach((box) => { box.checked = on; });
    draw();
  });
});
