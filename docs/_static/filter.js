// Hides the rows of the page's table that lack the text of the search field.
const field = document.getElementById("op-filter");
const rows = document.querySelectorAll("table tbody tr");
field.addEventListener("input", () => {
  const wanted = field.value.trim().toLowerCase();
  for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
});
