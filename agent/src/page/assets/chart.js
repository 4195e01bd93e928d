// Charts over time: lines in panels above one another, one cursor through all of them, and a table of the same.
'use strict';

const SVG = 'http://www.w3.org/2000/svg';
const LEFT = 58;
const RIGHT = 10;

function svg(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = plain(text);
  return made;
}

/** Steps of a scale, at most five of them: powers of two for bytes, 1-2-5 for everything else. */
function steps(highest, isBytes) {
  let step = isBytes ? 1 : 10 ** Math.floor(Math.log10(highest / 5 || 1));
  if (isBytes) while (highest / step > 5) step *= 2;
  else step *= [1, 2, 5, 10].find((factor) => highest / (step * factor) <= 5) ?? 10;
  const all = [];
  for (let at = 0; at <= highest; at += step) all.push(at);
  return all;
}

/** The nearest point to `x`; points are in order of x. */
function nearest(points, x) {
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1;
    else high = middle;
  }
  if (low > 0 && x - points[low - 1][0] < points[low][0] - x) low -= 1;
  return points[low];
}

/** A line through the points, of which each column of the screen keeps its lowest and its highest. */
function line(points, x, y, gap) {
  const path = [];
  let column = null;
  let last = null;
  const put = (point, jump) => path.push(`${jump ? 'M' : 'L'}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`);
  const flush = () => {
    if (!column) return;
    const { first, low, high, end, jump } = column;
    const order = low[0] <= high[0] ? [first, low, high, end] : [first, high, low, end];
    order.forEach((point, index) => {
      if (index === 0 || point !== order[index - 1]) put(point, index === 0 && jump);
    });
  };
  for (const point of points) {
    const at = Math.round(x(point[0]));
    const jump = last === null || point[0] - last > gap;
    if (column && column.at === at && !jump) {
      if (point[1] < column.low[1]) column.low = point;
      if (point[1] > column.high[1]) column.high = point;
      column.end = point;
    } else {
      flush();
      column = { at, first: point, low: point, high: point, end: point, jump };
    }
    [last] = point;
  }
  flush();
  return path.join('');
}

/** One panel, drawn for a width. Series and marks are told apart by dashes as well as by colours. */
function panel(description, width, domain) {
  const { title, series, marks = [], height = 190, isBytes = true, format = bytes, gap = Infinity } = description;
  const values = series.flatMap((one) => one.points.map((point) => point[1]));
  const highest = Math.max(1, ...marks.map((mark) => mark.y), values.reduce((a, b) => Math.max(a, b), 0)) * 1.06;
  const bottom = height - 20;
  const x = (at) => LEFT + ((at - domain[0]) / (domain[1] - domain[0] || 1)) * (width - LEFT - RIGHT);
  const y = (value) => bottom - (Math.max(0, value) / highest) * (bottom - 10);
  const drawn = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' });
  for (const value of steps(highest, isBytes)) {
    drawn.append(svg('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
    drawn.append(svg('text', { x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' }, format(value)));
  }
  const seconds = (domain[1] - domain[0]) / 1000;
  const every = [1, 2, 5, 10, 20, 30, 60, 120].find((step) => seconds / step <= width / 90) ?? 300;
  for (let at = Math.ceil(domain[0] / 1000 / every) * every; at <= domain[1] / 1000; at += every) {
    drawn.append(svg('text', { x: x(at * 1000), y: height - 4, 'text-anchor': at ? 'middle' : 'end' }, at ? `${at} s` : description.end ?? 'now'));
  }
  marks.forEach((mark) => drawn.append(svg('line', { class: `mark ${mark.look}`, x1: LEFT, x2: width - RIGHT, y1: y(mark.y), y2: y(mark.y) })));
  series.forEach((one, index) => drawn.append(svg('path', { class: `series s${index}`, d: line(one.points, x, y, gap) })));
  const cursor = svg('line', { class: 'cursor', y1: 6, y2: bottom, x1: -9, x2: -9 });
  drawn.append(cursor);
  const move = (at) => ['x1', 'x2'].forEach((name) => cursor.setAttribute(name, x(at).toFixed(1)));
  const where = (pixel) => domain[0] + ((pixel - LEFT) / (width - LEFT - RIGHT)) * (domain[1] - domain[0]);
  const key = (look, text) => {
    const sample = svg('svg', { width: 26, height: 10, 'aria-hidden': 'true' });
    sample.append(svg('line', { class: look, x1: 0, x2: 26, y1: 5, y2: 5 }));
    return el('li', null, sample, text);
  };
  const isPlain = series.length === 1 && marks.length === 0;
  const legend = isPlain ? null : el('ul', { class: 'legend' }, series.map((one, index) => key(`series s${index}`, one.name)),
    marks.map((mark) => key(`mark ${mark.look}`, `${mark.name} ${format(mark.y)}`)));
  return { box: el('div', { class: 'panel' }, el('h4', null, title), legend, drawn), move, where, drawn };
}

/** Panels under one cursor, which a slider moves as well as the pointer. They are drawn anew when the width changes. */
function chart(name, panels, domain) {
  const plots = el('div', { class: 'plots' });
  const values = el('output', { class: 'values' });
  const slider = el('input', { type: 'range', min: domain[0], max: domain[1], step: 10, 'aria-label': `${name}: moment` });
  let [drawn, width, at] = [[], 0, null];
  const all = () => panels.flatMap((each) => each.series.map((one) => ({ ...one, format: each.format ?? bytes })));
  const words = (moment) => all().filter((one) => one.points.length).map((one) => `${one.name} ${one.format(nearest(one.points, moment)[1])}`);
  const show = (moment, isByKey) => {
    at = Math.min(domain[1], Math.max(domain[0], moment));
    drawn.forEach((each) => each.move(at));
    const text = [`${(at / 1000).toFixed(2)} s`, ...words(at)];
    tell(values, text.join(' · '));
    slider.setAttribute('aria-valuetext', text.join(', '));
    if (!isByKey) slider.value = at;
  };
  slider.addEventListener('input', () => show(Number(slider.value), true));
  const draw = () => {
    drawn = panels.map((each) => panel(each, width, domain));
    plots.replaceChildren(...drawn.map((each) => each.box));
    for (const each of drawn) {
      each.drawn.addEventListener('pointermove', (event) => show(each.where(event.offsetX)));
      each.drawn.addEventListener('pointerdown', (event) => show(each.where(event.offsetX)));
    }
    if (at !== null) drawn.forEach((each) => each.move(at));
  };
  new ResizeObserver(() => {
    const now = Math.floor(plots.clientWidth);
    if (now > 0 && now !== width) {
      width = now;
      draw();
    }
  }).observe(plots);
  show(domain[1]);
  return el('div', { class: 'chart', role: 'group', 'aria-label': name }, plots, el('div', { class: 'moment' }, slider, values));
}

/** The same as numbers: a row for each second, from the nearest point of every series. */
function chartTable(caption, panels, domain) {
  const all = panels.flatMap((each) => each.series.map((one) => ({ ...one, format: each.format ?? bytes })));
  const drawn = all.filter((one) => one.points.length);
  const rows = [];
  for (let at = Math.ceil(domain[0] / 1000) * 1000; at <= domain[1]; at += 1000) {
    rows.push([`${at / 1000} s`, ...drawn.map((one) => one.format(nearest(one.points, at)[1]))]);
  }
  return table(caption, ['#Time', ...drawn.map((one) => `#${one.name}`)], rows);
}
