"use strict";
// Draws the charts of the page. Each stands beside its data, which is kept by columns because that is shorter.
(async () => {
  const font = "system-ui,-apple-system,'Segoe UI',Roboto,sans-serif";
  const text = "var(--text)", soft = "var(--soft)", edge = "var(--edge)";
  const config = {
    aria: false, // the chart has a name, and its figures are in a table
    background: "transparent",
    font,
    view: { stroke: null },
    axis: {
      labelColor: soft, titleColor: soft, gridColor: edge, domainColor: edge, tickColor: edge,
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal",
    },
    axisYQuantitative: { domain: false, ticks: false },
    legend: { labelColor: text, labelFontSize: 12 },
    text: { fontSize: 12 },
  };
  // a grid has a list of values for each row of the chart, and nothing is drawn where there is nothing
  const cells = ({ label, at, until, value }) => label.flatMap((name, y) => value[y].map((cell, x) => (
    { label: name, at: at[x], until: until[x], value: cell }
  ))).filter((cell) => cell.value);
  const rows = (columns) => {
    if (Array.isArray(columns.value?.[0])) return cells(columns);
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) => Object.fromEntries(names.map((name) => [name, columns[name][i]])));
  };
  // the interpreter evaluates no text as code, which the page forbids
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, config };
  const draw = async (place) => {
    const { spec, data } = JSON.parse(place.firstElementChild.textContent);
    spec.datasets = Object.fromEntries(Object.entries(data).map(([name, columns]) => [name, rows(columns)]));
    const drawn = document.createElement("div");
    place.append(drawn);
    await vegaEmbed(drawn, spec, options);
  };
  // what nobody sees has no width, and is drawn once somebody follows a link to it
  const drawShown = async () => {
    for (const place of document.querySelectorAll(".chart:not([data-drawn])")) {
      if (!place.getClientRects().length) continue;
      place.dataset.drawn = "yes";
      await draw(place);
    }
  };
  addEventListener("hashchange", drawShown);
  await drawShown();
  document.documentElement.dataset.drawn = "yes";
})();
