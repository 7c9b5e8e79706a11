// Tables of class "data": a click on a column's button sorts, the filter keeps rows that have all its words, and what is shown can be copied.
(() => {
  const collator = new Intl.Collator("en", { numeric: true });
  const say = (text) => { document.getElementById("said").textContent = text; };
  const textOf = (cell) => cell.textContent.trim().replace(/\s+/g, " ");

  function setUp(table) {
    const head = [...table.tHead.rows[0].cells];
    const body = table.tBodies[0];
    const rows = [...body.rows];                                    // in the order of the page, which sorting equal rows keeps
    const tools = document.querySelector(`.tools[data-for="${table.id}"]`);

    function compare(column, one, other) {
      const [a, b] = [textOf(one.cells[column]), textOf(other.cells[column])];
      if (a === b) return 0;
      if (!a || !b) return a ? -1 : 1;                              // empty cells last
      if ("number" in head[column].dataset) {
        const [x, y] = [Number(a), Number(b)];
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        return x - y;
      }
      return collator.compare(a, b);
    }

    head.forEach((cell, column) => cell.querySelector("button").addEventListener("click", () => {
      const down = cell.getAttribute("aria-sort") === "ascending";
      head.forEach((other) => other.setAttribute("aria-sort", "none"));
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const order = [...rows].sort((one, other) => compare(column, one, other));
      if (down) order.reverse();
      body.append(...order);
      say(`Sorted by ${textOf(cell)}, ${down ? "descending" : "ascending"}`);
    }));

    const filter = tools.querySelector("input");
    const counter = tools.querySelector("output");
    const total = counter.textContent;
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      for (const row of rows) {
        const text = [...row.cells].map(textOf).join(" ").toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        left += row.hidden ? 0 : 1;
      }
      counter.textContent = left === rows.length ? total : `${left} of ${total}`;
    });

    tools.querySelectorAll("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
      const shown = [...body.rows].filter((row) => !row.hidden);
      const done = await copy(FORMS[button.dataset.copy](head, shown));
      say(done ? `${shown.length} rows copied as ${button.textContent}` : "This browser did not allow the copy");
      const name = button.textContent;
      if (button.dataset.busy) return;
      button.dataset.busy = "1";
      button.textContent = done ? "Copied" : "Not allowed";
      setTimeout(() => { button.textContent = name; delete button.dataset.busy; }, 1500);
    }));
  }

  const key = (cell) => cell.dataset.key;
  const numeric = (cell) => "number" in cell.dataset;
  const FORMS = {
    // A text that a spreadsheet would take for a formula is quoted as text.
    tsv: (head, rows) => [head.map(key), ...rows.map((row) => head.map((column, i) => {
      const text = textOf(row.cells[i]);
      return !numeric(column) && /^[=+\-@]/.test(text) ? `'${text}` : text;
    }))].map((cells) => cells.join("\t")).join("\n") + "\n",
    markdown: (head, rows) => [head.map((c) => textOf(c)), head.map((c) => (numeric(c) ? "---:" : "---")), ...rows.map((row) => head.map((_, i) =>
      textOf(row.cells[i]).replace(/[\\`*_<>[\]|#&~]/g, "\\$&")))].map((cells) => `| ${cells.join(" | ")} |`).join("\n") + "\n",
    json: (head, rows) => JSON.stringify(rows.map((row) => Object.fromEntries(head.map((column, i) => {
      const text = textOf(row.cells[i]);
      return [key(column), text === "" ? null : numeric(column) && !Number.isNaN(Number(text)) ? Number(text) : text];
    }))), null, 1) + "\n",
  };

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");              // where a page from a file has no clipboard of its own
      area.value = text;
      area.className = "hidden";
      document.body.append(area);
      const before = document.activeElement;
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      before?.focus();
      return done;
    }
  }

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("table.data").forEach(setUp));
})();
