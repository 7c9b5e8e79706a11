// Places in the page: a link opens what its place is folded in, a badge leads to its finding, and paper shows everything opened.
(() => {
  function opened(element) {
    for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  }

  function arrive() {
    const place = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!place) return;
    opened(place);
    place.scrollIntoView({ block: "nearest" });
    if (place.matches('[tabindex="-1"]')) place.focus({ preventScroll: true });
  }

  document.addEventListener("DOMContentLoaded", () => {
    addEventListener("hashchange", arrive);
    arrive();

    document.querySelectorAll("[data-folds]").forEach((button) => {
      const folds = button.closest("section").querySelectorAll(".strip details");
      const tell = () => {
        const all = [...folds].every((fold) => fold.open);
        button.setAttribute("aria-expanded", String(all));
        button.textContent = all ? "Close all blocks" : "Open all blocks";
      };
      button.addEventListener("click", () => {
        const open = button.getAttribute("aria-expanded") !== "true";
        folds.forEach((fold) => { fold.open = open; });
        tell();
      });
      folds.forEach((fold) => fold.addEventListener("toggle", tell));
    });

    document.querySelectorAll("[data-finding]").forEach((badge) => badge.addEventListener("click", (event) => {
      const target = document.querySelector(`[data-of~="${badge.dataset.finding}"]`);
      if (!target) return;
      event.preventDefault();                                       // a badge on a folded block must not open the block
      if (location.hash === `#${target.id}`) arrive();
      else location.hash = target.id;
    }));

    const shut = [];
    addEventListener("beforeprint", () => document.querySelectorAll("details.about:not([open]), details.all:not([open])").forEach((one) => { one.open = true; shut.push(one); }));
    addEventListener("afterprint", () => { while (shut.length) shut.pop().open = false; });
  });
})();
