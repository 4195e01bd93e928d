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
  const decade = 10 ** Math.floor(Math.log10(highest / 5));
  const step = isBytes ? Math.max(1, 2 ** Math.ceil(Math.log2(highest / 5))) : decade * ([1, 2, 5].find((factor) => highest / (decade * factor) <= 5) ?? 10);
  return Array.from({ length: Math.floor(highest / step) + 1 }, (_, index) => index * step);
}

/** The nearest point to `x`. */
const nearest = (points, x) => points.reduce((one, other) => (Math.abs(one[0] - x) < Math.abs(other[0] - x) ? one : other));

/** A line through the points, of which each column of the screen keeps its first, lowest, highest and last. */
function line(points, x, y, gap) {
  const columns = [];
  points.forEach((point, index) => {
    const at = Math.round(x(point[0]));
    const jump = index === 0 || point[0] - points[index - 1][0] > gap;
    if (jump || columns.at(-1).at !== at) columns.push({ at, jump, all: [] });
    columns.at(-1).all.push(point);
  });
  return columns.map(({ jump, all }) => {
    const byValue = all.toSorted((one, other) => one[1] - other[1]);
    const kept = all.filter((point) => [all[0], byValue[0], byValue.at(-1), all.at(-1)].includes(point));
    const move = (index) => (jump && index === 0 ? 'M' : 'L');
    return kept.map((point, index) => `${move(index)}${x(point[0]).toFixed(1)} ${y(point[1]).toFixed(1)}`).join('');
  }).join('');
}

/** One panel, drawn for a width. Series and marks are told apart by dashes as well as by colours. */
function panel(description, width, domain) {
  const { title, series, marks = [], height = 190, isBytes = true, format = bytes, gap = Infinity } = description;
  const values = series.flatMap((one) => one.points.map((point) => point[1]));
  const highest = Math.max(1, ...marks.map((mark) => mark.y), values.reduce((a, b) => Math.max(a, b), 0)) * 1.06;
  const bottom = height - 20;
  const [span, room] = [domain[1] - domain[0], width - LEFT - RIGHT];
  const x = (at) => LEFT + ((at - domain[0]) / span) * room;
  const y = (value) => bottom - (Math.max(0, value) / highest) * (bottom - 10);
  const drawn = svg('svg', { width, height, viewBox: `0 0 ${width} ${height}`, 'aria-hidden': 'true' });
  for (const value of steps(highest, isBytes)) {
    drawn.append(svg('line', { class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }));
    drawn.append(svg('text', { x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' }, format(value)));
  }
  const every = [1, 2, 5, 10, 20, 30, 60, 120].find((step) => span / 1000 / step <= width / 90) ?? 300;
  for (let at = Math.ceil(domain[0] / 1000 / every) * every; at <= domain[1] / 1000; at += every) {
    drawn.append(svg('text', { x: x(at * 1000), y: height - 4, 'text-anchor': at ? 'middle' : 'end' }, at ? `${at} s` : description.end ?? 'now'));
  }
  marks.forEach((mark) => drawn.append(svg('line', { class: `mark ${mark.look}`, x1: LEFT, x2: width - RIGHT, y1: y(mark.y), y2: y(mark.y) })));
  series.forEach((one, index) => drawn.append(svg('path', { class: `series s${index}`, d: line(one.points, x, y, gap) })));
  const cursor = svg('line', { class: 'cursor', y1: 6, y2: bottom, x1: -9, x2: -9 });
  drawn.append(cursor);
  const move = (at) => ['x1', 'x2'].forEach((name) => cursor.setAttribute(name, x(at).toFixed(1)));
  const where = (pixel) => domain[0] + ((pixel - LEFT) / room) * span;
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

/** Every series of these panels that has points, with what writes its values. */
const drawnIn = (panels) => panels.flatMap((each) => each.series.map((one) => ({ ...one, format: each.format ?? bytes }))).filter((one) => one.points.length);

/** Panels under one cursor, which a slider moves as well as the pointer. They are drawn anew when the width changes. */
function chart(name, panels, domain) {
  const plots = el('div', { class: 'plots' });
  const values = el('output', { class: 'values' });
  const slider = el('input', { type: 'range', min: domain[0], max: domain[1], step: 10, 'aria-label': `${name}: moment` });
  let [drawn, width, at] = [[], 0, null];
  const words = (moment) => drawnIn(panels).map((one) => `${one.name} ${one.format(nearest(one.points, moment)[1])}`);
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
      for (const kind of ['pointermove', 'pointerdown']) each.drawn.addEventListener(kind, (event) => show(each.where(event.offsetX)));
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
  const drawn = drawnIn(panels);
  const rows = [];
  for (let at = domain[0]; at <= domain[1]; at += 1000) {
    rows.push([`${at / 1000} s`, ...drawn.map((one) => one.format(nearest(one.points, at)[1]))]);
  }
  return table(caption, ['#Time', ...drawn.map((one) => `#${one.name}`)], rows);
}
