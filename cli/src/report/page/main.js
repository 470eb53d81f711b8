// Begins: reads the data, fills the tables, shows the connection that has most to show.

// Verdicts first, then losses, then packets.
function mostInteresting() {
  const weight = (c, place) => [report.verdicts.some((v) => v.connection === place) ? 1 : 0, c.counts.lost + c.counts.again, c.counts.packets];
  let best = 0;
  report.connections.forEach((c, place) => {
    const [a, b] = [weight(c, place), weight(report.connections[best], best)];
    const differs = a.findIndex((v, k) => v !== b[k]);
    if (differs >= 0 && a[differs] > b[differs]) best = place;
  });
  return best;
}

function listen() {
  byId('connection-filter').addEventListener('input', showConnections);
  byId('space').addEventListener('input', (event) => selectSpace(Number(event.target.value)));
  byId('path').addEventListener('input', (event) => selectPath(Number(event.target.value)));
  byId('zoom-in').addEventListener('click', () => zoom(0.5));
  byId('zoom-out').addEventListener('click', () => zoom(2));
  byId('zoom-all').addEventListener('click', () => setRange(view.begin, view.end));
  byId('rows-in').addEventListener('click', () => zoomRows(1));
  byId('rows-out').addEventListener('click', () => zoomRows(-1));
  byId('search').addEventListener('input', (event) => search(event.target.value));
  byId('search').addEventListener('keydown', (event) => { if (event.key === 'Enter') step(event.shiftKey ? -1 : 1); });
  byId('only-matches').addEventListener('input', () => search(sequence.query));
  byId('next').addEventListener('click', () => step(1));
  byId('previous').addEventListener('click', () => step(-1));
  addEventListener('resize', redraw);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
}

async function main() {
  const begin = performance.now();
  await load();
  document.querySelector('main').hidden = false;
  showFiles();
  showVerdicts();
  showReplays();
  showConnections();
  showLegend();
  byId('view').hidden = !report.connections.length;
  if (report.connections.length) {
    makeCharts();
    makeSequence();
    listen();
    selectConnection(mostInteresting());
    drawNow();
    const asked = /^#(\d+):(\d+)$/.exec(location.hash);
    if (asked) showNumbered(Number(asked[1]), Number(asked[2]));
  }
  document.body.dataset.ready = String(Math.round(performance.now() - begin));
  if (location.hash === '#selftest') selftest(performance.now() - begin);
}

main().catch((error) => {
  const box = byId('failure');
  box.hidden = false;
  box.textContent = `The report cannot be shown: ${error.message}`
    + (typeof DecompressionStream === 'undefined' ? ' (this browser is too old: it has no DecompressionStream)' : '');
});
