// A canvas with a time axis that all charts share: its frame, its scales, and what the mouse does on it.

const MARGIN = { left: 76, right: 10, top: 6, bottom: 22 };

// A canvas in device pixels; the context draws in CSS pixels.
function prepare(canvas, width = canvas.clientWidth, height = canvas.clientHeight) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = '12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';
  context.textBaseline = 'middle';
  return { context, width, height, ratio };
}

class Plot {
  // `scale()` gives { low, high, binary, label } of the vertical axis; `draw(plot)` draws the data; `nearest(plot, x, y)`
  // gives a packet or a text for the mouse.
  constructor(canvas, { scale, draw, nearest }) {
    Object.assign(this, { canvas, scale, drawData: draw, nearest, drag: null, hover: null });
    drawers.push(() => this.draw());
    canvas.addEventListener('wheel', (event) => this.wheel(event), { passive: false });
    canvas.addEventListener('pointerdown', (event) => this.begin(event));
    canvas.addEventListener('pointermove', (event) => this.move(event));
    canvas.addEventListener('pointerup', (event) => this.release(event));
    canvas.addEventListener('pointerleave', () => { this.hover = null; hideTooltip(this); });
    canvas.addEventListener('dblclick', () => setRange(view.begin, view.end));
  }

  get inner() { return this.width - MARGIN.left - MARGIN.right; }
  get depth() { return this.height - MARGIN.top - MARGIN.bottom; }
  x(time) { return MARGIN.left + (time - view.from) / (view.to - view.from) * this.inner; }
  y(value) { return MARGIN.top + (1 - (value - this.low) / (this.high - this.low)) * this.depth; }
  timeAt(x) { return view.from + (x - MARGIN.left) / this.inner * (view.to - view.from); }

  draw() {
    const visible = prepare(this.canvas);
    if (view.connection < 0 || visible.width < MARGIN.left + MARGIN.right + 10) return;
    this.drawLayer();
    const c = visible.context;
    c.save();
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.drawImage(this.layer, 0, 0);
    c.restore();
    c.beginPath();
    c.rect(MARGIN.left, MARGIN.top, this.inner, this.depth);
    c.clip();
    this.band(c);
    this.marks(c);
  }

  // Frame and data, which stay as they are while the sequence diagram is scrolled or a packet is chosen.
  drawLayer() {
    const { canvas } = this;
    const key = [view.connection, view.path, view.space, view.from, view.to, canvas.width, canvas.height,
      view.colours.background].join();
    if (this.key === key) return;
    this.key = key;
    this.layer = this.layer || document.createElement('canvas');
    Object.assign(this, prepare(this.layer, canvas.clientWidth, canvas.clientHeight));
    const scale = this.scale();
    this.low = scale ? scale.low : 0;
    this.high = scale && scale.high > scale.low ? scale.high : this.low + 1;
    const c = this.context;
    this.frame(scale);
    c.save();
    c.beginPath();
    c.rect(MARGIN.left, MARGIN.top, this.inner, this.depth);
    c.clip();
    if (scale) this.drawData(this);
    c.restore();
    if (!scale) {
      c.fillStyle = view.colours.muted;
      c.textAlign = 'center';
      c.fillText('none in this time', MARGIN.left + this.inner / 2, MARGIN.top + this.depth / 2);
    }
  }

  frame(scale) {
    const c = this.context;
    c.lineWidth = 1;
    c.strokeStyle = view.colours.grid;
    c.fillStyle = view.colours.muted;
    const line = (x0, y0, x1, y1) => { c.beginPath(); c.moveTo(x0, y0); c.lineTo(x1, y1); c.stroke(); };
    if (scale) {
      c.textAlign = 'right';
      const step = stepFor(this.high - this.low, Math.max(2, this.depth / 40), scale.binary);
      const offset = scale.offset || 0;
      for (let v = Math.ceil((this.low + offset) / step) * step - offset; v <= this.high; v += step) {
        const y = Math.round(this.y(v)) + 0.5;
        line(MARGIN.left, y, this.width - MARGIN.right, y);
        c.fillText(scale.label(v), MARGIN.left - 8, y);
      }
    }
    c.textAlign = 'center';
    const span = view.to - view.from;
    const [unit, name] = unitOf(Math.max(Math.abs(view.from), Math.abs(view.to)) > span * 1e4 ? span * 1e4 : span);
    const step = stepFor(span, Math.max(2, this.inner / 110));
    const digits = Math.max(0, Math.min(9, -Math.floor(Math.log10(step / unit) + 1e-9)));
    for (let t = Math.ceil(view.from / step) * step; t <= view.to; t += step) {
      const x = Math.round(this.x(t)) + 0.5;
      line(x, MARGIN.top, x, this.height - MARGIN.bottom);
      if (x > MARGIN.left + 20 && x < this.width - 34) {
        c.fillText(`${(t / unit + 0).toFixed(digits)} ${name}`, x, this.height - MARGIN.bottom + 12);
      }
    }
    c.strokeStyle = view.colours.border;
    c.strokeRect(MARGIN.left + 0.5, MARGIN.top + 0.5, this.inner - 1, this.depth - 1);
  }

  // The time that the sequence diagram shows.
  band(c) {
    const shown = sequenceSpan();
    if (!shown) return;
    const from = this.x(shown[0]), to = this.x(shown[1]);
    c.fillStyle = view.colours.band;
    c.fillRect(from - 1, MARGIN.top, Math.max(to - from, 0) + 2, this.depth);
  }

  // The selected packet, and the span that the mouse is about to choose.
  marks(c) {
    if (view.selected >= 0) {
      c.fillStyle = view.colours.accent;
      c.fillRect(Math.round(this.x(packets.time[view.selected])), MARGIN.top, 1, this.depth);
    }
    if (this.drag && Math.abs(this.drag.to - this.drag.from) > 3) {
      c.fillStyle = view.colours.band;
      c.fillRect(Math.min(this.drag.from, this.drag.to), MARGIN.top, Math.abs(this.drag.to - this.drag.from), this.depth);
    }
  }

  wheel(event) {
    event.preventDefault();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const by = (view.to - view.from) * (event.deltaX || event.deltaY) / this.inner;
      setRange(view.from + by, view.to + by);
    } else {
      zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), this.timeAt(event.offsetX));
    }
  }

  begin(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.drag = { from: event.offsetX, to: event.offsetX };
  }

  move(event) {
    if (this.drag) {
      this.drag.to = event.offsetX;
      redraw();
      return;
    }
    const found = this.nearest && this.nearest(this, event.offsetX, event.offsetY);
    if (found === undefined || found === null || found === -1) return hideTooltip(this);
    this.hover = typeof found === 'number' ? found : null;
    showTooltip(this, event, typeof found === 'number' ? packetDetails(found) : found);
  }

  release(event) {
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    if (Math.abs(drag.to - drag.from) > 3) {
      setRange(this.timeAt(Math.min(drag.from, drag.to)), this.timeAt(Math.max(drag.from, drag.to)));
    } else {
      const found = this.nearest && this.nearest(this, event.offsetX, event.offsetY);
      if (typeof found === 'number' && found >= 0) selectPacket(found);
      else scrollToTime(this.timeAt(event.offsetX));
    }
    redraw();
  }
}

// The places in view.rows of the packets in the time that is shown. Answers are drawn when they arrive, so that some
// that were sent before the time belong to it.
function visible(before) {
  const begin = firstFrom(view.rows, packets.time, view.from - (before || 0));
  return [begin, firstFrom(view.rows, packets.time, view.to)];
}

// Points that are many: each is a square of device pixels in an image, the more important kind above the less important.
class Cloud {
  constructor(plot, size) {
    this.plot = plot;
    this.left = Math.round(MARGIN.left * plot.ratio);
    this.top = Math.round(MARGIN.top * plot.ratio);
    this.width = Math.round(plot.inner * plot.ratio);
    this.height = Math.round(plot.depth * plot.ratio);
    this.kinds = new Uint8Array(this.width * this.height);
    this.size = Math.max(1, Math.round(size * plot.ratio));
  }

  add(x, y, kind) {
    const left = Math.round(x * this.plot.ratio) - this.left - (this.size >> 1);
    const top = Math.round(y * this.plot.ratio) - this.top - (this.size >> 1);
    // Of a million packets, most are where the one before them was.
    if (left === this.lastLeft && top === this.lastTop && kind <= this.lastKind) return;
    this.lastLeft = left;
    this.lastTop = top;
    this.lastKind = kind;
    for (let v = Math.max(top, 0); v < Math.min(top + this.size, this.height); v++) {
      for (let u = Math.max(left, 0); u < Math.min(left + this.size, this.width); u++) {
        const place = v * this.width + u;
        if (this.kinds[place] <= kind) this.kinds[place] = kind + 1;
      }
    }
  }

  paint() {
    const c = this.plot.context;
    const image = c.getImageData(this.left, this.top, this.width, this.height);
    const out = new Uint32Array(image.data.buffer);
    const colours = KINDS.map((_, kind) => {
      const rgb = parseInt(kindColour(kind).slice(1), 16);
      return (0xff000000 | (rgb & 255) << 16 | rgb & 0xff00 | rgb >> 16) >>> 0;
    });
    for (let i = 0; i < out.length; i++) if (this.kinds[i]) out[i] = colours[this.kinds[i] - 1];
    c.putImageData(image, this.left, this.top);
  }
}
