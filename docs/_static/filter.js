// Shows the ops of the page that have the text of the search field in their names: rows of a table, names in paragraphs.
const field = document.getElementById("op-filter");
const rows = document.querySelectorAll("table tbody tr");
const lists = ["evaluated-at-conversion", "supported"].flatMap((id) =>
  [...document.querySelectorAll(`#${id} > p:last-of-type, #supported > p`)].map((p) => [p, p.textContent.split(", ")])
);
field.addEventListener("input", () => {
  const wanted = field.value.trim().toLowerCase();
  for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  for (const [p, names] of lists) p.textContent = names.filter((n) => n.toLowerCase().includes(wanted)).join(", ");
});
