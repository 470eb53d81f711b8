// With #selftest behind the page's address, the page drives itself and writes what it found into #selftest, as JSON: for
// tests in a browser, and to measure.

// How many pixels of a canvas have the colour of each kind.
function pixelsOf(canvas) {
  const found = {};
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  const counts = new Map();
  for (let i = 0; i < data.length; i += 4) {
    const rgb = data[i] << 16 | data[i + 1] << 8 | data[i + 2];
    if (data[i + 3] === 255) counts.set(rgb, (counts.get(rgb) || 0) + 1);
  }
  for (const { name } of KINDS) {
    if (name !== 'repaired') found[name] = counts.get(parseInt(view.colours[name].slice(1), 16)) || 0;
  }
  return found;
}

const CANVASES = ['chart-psn', 'chart-flight', 'chart-throughput', 'chart-trips', 'chart-completions', 'sequence'];
const drawn = () => Object.fromEntries(CANVASES.map((id) => [id, pixelsOf(byId(id))]));

function drawTimed() {
  for (const plot of [psnPlot, flightPlot, throughputPlot, tripPlot, completionPlot]) plot.key = '';
  const begin = performance.now();
  drawNow();
  return performance.now() - begin;
}

function fire(target, name, values) {
  const Kind = name === 'wheel' ? WheelEvent : name.startsWith('pointer') ? PointerEvent : Event;
  target.dispatchEvent(new Kind(name, { bubbles: true, cancelable: true, ...values }));
}

function selftest(loaded) {
  const result = { loaded, packets: packets.count, connections: report.connections.length, connection: view.connection };
  result.drawMillis = drawTimed();
  result.boxes = Object.fromEntries(CANVASES.map((id) => {
    const box = byId(id).getBoundingClientRect();
    return [id, [box.left, box.top + scrollY, box.width, box.height].map(Math.round)];
  }));
  result.whole = { range: [view.from, view.to], drawn: drawn() };
  // The wheel zooms in at the mouse.
  const canvas = byId('chart-psn'), box = canvas.getBoundingClientRect();
  for (let k = 0; k < 8; k++) fire(canvas, 'wheel', { deltaY: -300, clientX: box.left + box.width / 2, clientY: box.top + 50 });
  const again = performance.now();
  drawNow();
  result.scrollMillis = performance.now() - again;
  result.zoomedMillis = drawTimed();
  result.zoomed = { range: [view.from, view.to], drawn: drawn() };
  fire(canvas, 'dblclick');
  drawNow();
  result.restored = [view.from, view.to];
  // A packet below the mouse is told.
  const some = view.rows[Math.floor(view.rows.length / 2)];
  fire(byId('sequence'), 'pointermove', { clientX: byId('sequence').getBoundingClientRect().left + 300,
    clientY: byId('sequence').getBoundingClientRect().top + HEAD + 5 });
  result.tooltip = byId('tooltip').textContent;
  // Search and filters.
  byId('search').value = 'again';
  fire(byId('search'), 'input');
  result.again = sequence.matches.length;
  step(1);
  result.selected = view.selected >= 0 ? packetDetails(view.selected) : null;
  byId('search').value = String(psnOf(some));
  fire(byId('search'), 'input');
  result.byPsn = Array.from(sequence.matches).some((row) => row === some);
  byId('only-matches').checked = true;
  fire(byId('only-matches'), 'input');
  result.onlyMatches = [sequence.rows.length, sequence.matches.length];
  byId('only-matches').checked = false;
  byId('search').value = '';
  fire(byId('search'), 'input');
  byId('connection-filter').value = 'no such connection';
  fire(byId('connection-filter'), 'input');
  result.filteredOut = document.querySelectorAll('#connections tbody tr').length;
  byId('connection-filter').value = report.connections[0].ends[0];
  fire(byId('connection-filter'), 'input');
  result.filteredIn = document.querySelectorAll('#connections tbody tr').length;
  const path = packets.path[some];
  selectPath(path);
  drawNow();
  result.ofPath = [view.rows.length, packetsOf.of(view.connection).length, view.rows.every((i) => packets.path[i] === path)];
  selectPath(-1);
  result.verdicts = [...document.querySelectorAll('#verdicts .verdict b')].map((b) => b.textContent);
  const link = document.querySelector('#verdicts a');
  if (link) {
    link.click();
    drawNow();
    result.jumped = [link.textContent, packets.number[view.selected]];
  }
  // All packets at once in the sequence diagram.
  for (let k = 0; k < ROW_HEIGHTS.length; k++) zoomRows(-1);
  result.overviewMillis = drawTimed();
  result.overview = drawn().sequence;
  byId('selftest').textContent = JSON.stringify(result);
  byId('selftest').hidden = false;
}
