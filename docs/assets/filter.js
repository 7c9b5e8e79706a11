// A box over long tables that leaves the rows that hold all of its words. Without script the table is whole.
for (const frame of document.querySelectorAll("[data-filter]")) {
  const rows = [...frame.querySelectorAll("tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const label = document.createElement("label");
  const box = document.createElement("input");
  const count = document.createElement("output");
  label.className = "table-filter";
  box.type = "search";
  box.placeholder = "words, such as: pre rmsnorm";
  count.textContent = `${rows.length} rows`;
  label.append("Search this table ", box, count);
  frame.before(label);
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      left += !row.hidden;
    });
    count.textContent = left === rows.length ? `${left} rows` : `${left} of ${rows.length} rows`;
  });
}
