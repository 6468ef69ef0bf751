// What comes several times a second goes from here straight into texts, lines and charts.
window.panel = (() => {
  const charts = new Map(); // by id of the element: {seconds, columns, live, due}
  let found = new Map(); // elements by selector, looked up once

  function elements(attribute, name) {
    const selector = `[${attribute}="${CSS.escape(name)}"]`;
    let list = found.get(selector);
    if (!list || !list.length || !list[0].isConnected) {
      list = [...document.querySelectorAll(selector)];
      found.set(selector, list);
    }
    return list;
  }

  function texts(values) {
    for (const [name, text] of Object.entries(values))
      for (const element of elements("data-value", name)) if (element.textContent !== text) element.textContent = text;
  }

  function lines(colours) {
    for (const [name, colour] of Object.entries(colours))
      for (const element of elements("data-line", name)) element.style.setProperty("--oil", colour);
  }

  function bars(values) {
    for (const [name, share] of Object.entries(values))
      for (const element of elements("data-bar", name)) {
        element.style.left = `${share < 0 ? 50 * (1 + share) : 50}%`;
        element.style.width = `${50 * Math.abs(share)}%`;
      }
  }

  // A chart begins anew with so many columns; it keeps the latest seconds and no more.
  function reset(id, seconds, count) {
    charts.set(id, { seconds, columns: Array.from({ length: count }, () => []), waiting: false, free: 0 });
  }

  function extend(id, times, columns) {
    const chart = charts.get(id);
    if (!chart || !times.length) return;
    const from = 1000 * (times[times.length - 1] - chart.seconds);
    chart.columns.forEach((points, k) => {
      for (let i = 0; i < times.length; i++) points.push([1000 * times[i], columns[k][i]]);
      let old = 0;
      while (old < points.length && points[old][0] < from) old++;
      if (old) points.splice(0, old);
    });
    schedule(id, chart);
  }

  // Drawing takes at most a third of the time, however slow the machine is.
  function schedule(id, chart) {
    if (chart.waiting) return;
    chart.waiting = true;
    const wait = Math.max(0, chart.free - performance.now());
    setTimeout(() => requestAnimationFrame(() => {
      chart.waiting = false;
      if (charts.get(id) !== chart) return;
      const began = performance.now();
      draw(id, chart);
      const end = performance.now();
      chart.free = end + 2 * (end - began);
    }), wait);
  }

  function draw(id, chart) {
    const element = getElement(id)?.chart;
    if (!element || !chart.columns.length || !chart.columns[0].length) return;
    if (element.getDom().offsetParent === null) return; // of another tab: drawn when it is looked at
    const last = chart.columns[0][chart.columns[0].length - 1][0];
    element.setOption({
      xAxis: { min: last - 1000 * chart.seconds, max: last },
      series: chart.columns.map((data) => ({ data })),
    });
  }

  function update(message) {
    if (message.texts) texts(message.texts);
    if (message.lines) lines(message.lines);
    if (message.bars) bars(message.bars);
    for (const [id, [times, columns]] of Object.entries(message.charts || {})) extend(Number(id), times, columns);
  }

  return { update, reset };
})();
