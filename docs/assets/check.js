// Knowledge checks: a button that judges what was chosen or typed. Without script the answer stands below each question.
for (const one of document.querySelectorAll(".check fieldset[data-answer]")) {
  const button = one.querySelector("button");
  const status = one.querySelector("[role=status]");
  const typed = one.querySelector("input[type=text]");
  const answer = Number(one.dataset.answer);
  const judge = () => {
    const chosen = typed ? typed.value.trim().replace(",", ".") : one.querySelector("input:checked")?.value;
    if (chosen === undefined || chosen === "" || Number.isNaN(Number(chosen))) {
      status.textContent = typed ? "Type a number first." : "Choose an answer first.";
      status.className = "";
      return;
    }
    const off = Math.abs(Number(chosen) - answer);
    const right = typed ? off <= Number(one.dataset.tolerance) * Math.max(Math.abs(answer), 1e-12) : off === 0;
    status.textContent = right ? "Right." : "Not so. Try again, or look at the answer below.";
    status.className = right ? "right" : "wrong";
  };
  button.hidden = false;
  button.addEventListener("click", judge);
  typed?.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      judge();
    }
  });
}
