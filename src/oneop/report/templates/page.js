"use strict";
// Sorting and filtering of tables with more than a few rows. Without this script the page shows all of them in order.
const numbers = new Intl.Collator(undefined, { numeric: true });

const key = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.order === undefined ? cell.innerText.trim() : Number(cell.dataset.order);
};

// Cells with a number to sort by come before those with text only, in either direction.
const compare = (a, b, direction) => {
  const numeric = [typeof a === "number", typeof b === "number"];
  if (numeric[0] && numeric[1]) return direction * (a - b);
  if (numeric[0] !== numeric[1]) return numeric[0] ? -1 : 1;
  return direction * numbers.compare(a, b);
};

const sortable = (table) => {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
      const rows = [...body.rows];
      rows.sort((a, b) => compare(key(a, column), key(b, column), direction));
      body.append(...rows);
    });
  });
};

const filterable = (table, tools) => {
  const input = tools.querySelector("input");
  const select = tools.querySelector("select");
  const output = tools.querySelector("output");
  const rows = [...table.tBodies[0].rows];
  const apply = () => {
    const wanted = input.value.trim().toLowerCase();
    const status = select ? select.value : "";
    let shown = 0;
    for (const row of rows) {
      const fits = row.textContent.toLowerCase().includes(wanted) && (!status || row.querySelector(`.${status}`));
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    output.textContent = wanted || status ? `${shown} of ${rows.length} rows` : "";
  };
  input.addEventListener("input", apply);
  if (select) select.addEventListener("change", apply);
  tools.hidden = false;
};

for (const tools of document.querySelectorAll(".tools")) {
  const table = tools.parentElement.querySelector("table");
  sortable(table);
  filterable(table, tools);
}

// What is folded away belongs on paper too.
const folded = [];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    folded.push(details);
  }
});
addEventListener("afterprint", () => {
  while (folded.length) folded.pop().open = false;
});
