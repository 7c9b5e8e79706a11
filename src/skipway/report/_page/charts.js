// Charts over depth: one site is chosen, by the pointer or by the arrow keys, in all of them at once.
(() => {
  document.addEventListener("DOMContentLoaded", () => {
    const all = document.getElementById("charts-all");
    if (!all || !all.dataset.x) return;
    const x = all.dataset.x.split(" ").map(Number);
    const names = all.dataset.names.split("\n");
    const at = document.getElementById("charts-at");
    const hint = at.textContent;
    const rows = [...(document.querySelector("#sites-table tbody")?.rows ?? [])];       // before any sorting
    const figures = [...all.querySelectorAll("figure")].map((figure) => ({
      svg: figure.querySelector("svg"), cursor: figure.querySelector(".cursor"), output: figure.querySelector("output"),
      title: figure.querySelector("h3").textContent, values: figure.dataset.values.split("\n"),
    }));
    let chosen = -1;

    function choose(site) {
      if (site === chosen) return;
      rows[chosen]?.classList.remove("at");
      chosen = site;
      rows[chosen]?.classList.add("at");
      at.classList.toggle("on", site >= 0);
      at.textContent = site < 0 ? hint : names[site].charAt(0).toUpperCase() + names[site].slice(1);
      figures.forEach(({ svg, cursor, output, values }) => {
        cursor.setAttribute("visibility", site < 0 ? "hidden" : "visible");
        if (site >= 0) cursor.setAttribute("d", cursor.getAttribute("d").replace(/^M[\d.]+/, `M${x[site]}`));
        output.textContent = site < 0 ? "" : values[site];
        svg.setAttribute("aria-valuenow", String(Math.max(site, 0)));
        svg.setAttribute("aria-valuetext", site < 0 ? "no site is chosen" : `${names[site]}: ${values[site]}`);
      });
    }

    function nearest(svg, clientX) {
      const box = svg.getBoundingClientRect();
      const where = (clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      return x.reduce((best, mark, site) => (Math.abs(mark - where) < Math.abs(x[best] - where) ? site : best), 0);
    }

    function show() {
      const row = rows[chosen];
      if (!row || row.hidden) return;
      row.scrollIntoView({ block: "center" });
    }

    figures.forEach(({ svg, title }) => {
      svg.setAttribute("role", "slider");
      svg.setAttribute("tabindex", "0");
      svg.setAttribute("aria-label", title);
      svg.setAttribute("aria-valuemin", "0");
      svg.setAttribute("aria-valuemax", String(x.length - 1));
      svg.setAttribute("aria-valuenow", "0");
      svg.setAttribute("aria-valuetext", "no site is chosen");
      svg.addEventListener("pointermove", (event) => choose(nearest(svg, event.clientX)));
      svg.addEventListener("pointerdown", (event) => choose(nearest(svg, event.clientX)));
      svg.addEventListener("dblclick", show);
      svg.addEventListener("keydown", (event) => {
        const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
        if (event.key in steps) choose(Math.min(Math.max(chosen < 0 ? 0 : chosen + steps[event.key], 0), x.length - 1));
        else if (event.key === "Home") choose(0);
        else if (event.key === "End") choose(x.length - 1);
        else if (event.key === "Escape") choose(-1);
        else if (event.key === "Enter") show();
        else return;
        event.preventDefault();
      });
    });
  });
})();
