// The page can be read without this. With it, arrow keys go through a matrix, and the reason behind a cell is shown below.
for (const table of document.querySelectorAll("table.matrix")) {
  const rows = [...table.tBodies[0].rows].map((row) => [...row.querySelectorAll("td a")]);
  const why = table.closest("section").querySelector(".why");
  const show = (cell) => {
    why.textContent = cell.getAttribute("aria-label");
  };
  const go = (cell) => {
    for (const other of table.querySelectorAll("td a")) other.tabIndex = -1;
    cell.tabIndex = 0;
  };
  if (!rows.length) continue;
  go(rows[0][0]);
  table.addEventListener("focusin", (event) => {
    const cell = event.target.closest("td a");
    if (cell) {
      go(cell);
      show(cell);
    }
  });
  table.addEventListener("mouseover", (event) => {
    const cell = event.target.closest("td a");
    if (cell) show(cell);
  });
  table.addEventListener("keydown", (event) => {
    const y = rows.findIndex((row) => row.includes(event.target));
    if (y < 0) return;
    const x = rows[y].indexOf(event.target);
    const to = {
      ArrowLeft: [y, x - 1], ArrowRight: [y, x + 1], ArrowUp: [y - 1, x], ArrowDown: [y + 1, x],
      Home: [y, 0], End: [y, rows[y].length - 1],
    }[event.key];
    const cell = to && rows[to[0]] && rows[to[0]][to[1]];
    if (!to) return;
    event.preventDefault();
    if (cell) cell.focus();
  });
}
