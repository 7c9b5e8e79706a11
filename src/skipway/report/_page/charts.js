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
      figures.forEach(({ cursor, output, values, tell }) => {
        cursor.setAttribute("visibility", site < 0 ? "hidden" : "visible");
        if (site >= 0) cursor.setAttribute("d", cursor.getAttribute("d").replace(/^M[\d.]+/, `M${x[site]}`));
        output.textContent = site < 0 ? "" : values[site];
        tell(site, `${names[site]}: ${values[site]}`);
      });
    }

    function show() {
      const row = rows[chosen];
      if (!row || row.hidden) return;
      row.scrollIntoView({ block: "center" });
    }

    figures.forEach((figure) => {
      figure.tell = slider(figure.svg, x, figure.title, "no site is chosen", () => chosen, choose, show);
    });
  });
})();
