// A chart as a slider: one of the places `x` along it is chosen, by the pointer or by the arrow keys. Gives what tells a screen reader of the choice.
const slider = (svg, x, title, none, chosen, choose, show) => {
  const last = x.length - 1;
  const nearest = (clientX) => {
    const box = svg.getBoundingClientRect();
    const where = (clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    return x.reduce((best, mark, place) => (Math.abs(mark - where) < Math.abs(x[best] - where) ? place : best), 0);
  };
  const tell = (place, text) => {
    svg.setAttribute("aria-valuenow", String(Math.max(place, 0)));
    svg.setAttribute("aria-valuetext", place < 0 ? none : text);
  };
  svg.setAttribute("role", "slider");
  svg.setAttribute("tabindex", "0");
  svg.setAttribute("aria-label", title);
  svg.setAttribute("aria-valuemin", "0");
  svg.setAttribute("aria-valuemax", String(last));
  tell(-1);
  svg.addEventListener("pointermove", (event) => choose(nearest(event.clientX)));
  svg.addEventListener("pointerdown", (event) => choose(nearest(event.clientX)));
  svg.addEventListener("dblclick", show);
  svg.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
    if (event.key in steps) choose(Math.min(Math.max(chosen() < 0 ? 0 : chosen() + steps[event.key], 0), last));
    else if (event.key === "Home") choose(0);
    else if (event.key === "End") choose(last);
    else if (event.key === "Escape") choose(-1);
    else if (event.key === "Enter") show();
    else return;
    event.preventDefault();
  });
  return tell;
};
