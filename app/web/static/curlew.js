// What the pages do by themselves: live data, charts, shortcuts, copying. Every page reads without.
'use strict';
(() => {
  const find = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  for (const button of all('#keys-open, #pause, .copy')) button.hidden = false;

  // Live data
  const live = find('#live[hx-sse\\:connect]'), pause = find('#pause'), lost = find('#lost');
  let paused = false;
  const setState = state => { document.documentElement.dataset.live = state; };
  const show = (element, shown) => { if (element) element.hidden = !shown; };
  const togglePause = () => {
    if (!live) return;
    if (paused) { location.reload(); return; }
    paused = true;
    live._htmx?.sse?.reader?.cancel();
    pause.textContent = pause.dataset.resume;
    setState('paused');
  };
  pause?.addEventListener('click', togglePause);
  document.addEventListener('htmx:sse:before:connection', event => { if (paused) event.preventDefault(); });
  document.addEventListener('htmx:sse:before:message', event => { if (paused) event.preventDefault(); });
  document.addEventListener('htmx:sse:after:connection', event => {
    setState('on');
    show(lost, false);
  });
  document.addEventListener('htmx:sse:error', event => {
    if ([401, 403, 404].includes(event.detail.status)) location.reload();
    setState('off');
    show(lost, true);
  });
  live?.addEventListener('looked', event => {
    const updated = find('#updated');
    if (updated) updated.textContent = event.detail.data;
  });
  // A refused stream leaves what is shown; the answer to it is no part of the page.
  document.addEventListener('htmx:before:swap', event => {
    const status = event.detail.ctx?.response?.raw?.status ?? 200;
    if (status >= 400) { event.preventDefault(); setState('off'); }
  });
  document.addEventListener('htmx:sse:after:message', () => { draw(); prepare(); });

  // Charts
  const HEIGHT = 170, plots = new Map();
  const colour = (element, name) => {
    const probe = document.createElement('span');
    probe.className = name;
    element.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const dataOf = figure => {
    const start = Number(figure.dataset.start) / 1000, step = Number(figure.dataset.step) / 1000;
    const rows = all('.data tbody tr', figure).map(row => all('td', row).map(cell => Number(cell.dataset.value) / step));
    const columns = (rows[0] ?? []).map((_, place) => rows.map(row => row[place]));
    return [rows.map((_, place) => start + place * step), ...columns];
  };
  const optionsOf = (figure, plot) => {
    const labels = all('.data thead th.number', figure).map(cell => cell.textContent);
    const axis = {stroke: colour(plot, 'ink-axis'), grid: {stroke: colour(plot, 'ink-grid'), width: 1}, ticks: {show: false}, font: '11px system-ui'};
    return {
      width: plot.clientWidth, height: HEIGHT, tzDate: ts => uPlot.tzDate(new Date(ts * 1000), 'Etc/UTC'),
      cursor: {y: false, points: {size: 6}}, legend: {live: true}, hooks: {ready: [showNewest], setCursor: [showNewest]},
      scales: {y: {range: (_, low, high) => [0, Math.max(1, high * 1.1)]}},
      padding: [8, 18, 0, 0],
      axes: [{...axis, size: 26, values: (_, ticks) => ticks.map(tick => new Date(tick * 1000).toISOString().slice(11, 16))}, {...axis, size: 48, values: (_, ticks) => ticks.map(tick => tick.toLocaleString('en'))}],
      series: [{}, ...labels.map((label, place) => ({
        label, width: 1.75, stroke: colour(plot, `ink-${place + 1}`), points: {show: false},
        value: (_, value) => value == null ? '–' : `${value.toLocaleString('en', {maximumFractionDigits: 1})} ${figure.dataset.unit}`,
      }))],
    };
  };
  // As wide as the card, whatever makes it wider; without the pointer the legend shows the newest.
  const widths = new ResizeObserver(entries => {
    for (const {target} of entries) plots.get(target)?.setSize({width: target.clientWidth, height: HEIGHT});
  });
  const showNewest = plot => { if (plot.cursor.idx == null) plot.setLegend({idx: plot.data[0].length - 1}, false); };
  function draw(anew = false) {
    for (const [plot, known] of plots) if (!plot.isConnected) { widths.unobserve(plot); known.destroy(); plots.delete(plot); }
    for (const figure of all('[data-chart]')) {
      const plot = find('.plot', figure), known = plots.get(plot);
      if (known && !anew) { known.setData(dataOf(figure)); showNewest(known); continue; }
      known?.destroy();
      plots.set(plot, new uPlot(optionsOf(figure, plot), dataOf(figure), plot));
      widths.observe(plot);
    }
  }
  draw();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw(true));

  // Copying: over plain HTTP browsers have no clipboard for scripts, so the text is selected instead
  function prepare() { for (const button of all('.copy[hidden]')) button.hidden = false; }
  document.addEventListener('click', async event => {
    const button = event.target.closest?.('.copy');
    if (!button) return;
    const code = find('code', button.parentElement), before = button.textContent;
    getSelection().selectAllChildren(code);
    try { await navigator.clipboard.writeText(code.textContent); } catch { document.execCommand('copy'); }
    button.textContent = button.dataset.copied;
    setTimeout(() => { button.textContent = before; }, 1500);
  });

  // A dangerous act waits until the name is typed; the node checks it as well
  document.addEventListener('input', event => {
    const typed = event.target.closest?.('[data-typed]');
    if (typed) allow(typed.form, typed.value === typed.dataset.typed);
  });
  const allow = (form, may) => { for (const button of all('button', form)) button.disabled = !may; };
  for (const typed of all('[data-typed]')) allow(typed.form, false);

  // Shortcuts
  const keys = find('#keys');
  find('#keys-open')?.addEventListener('click', () => keys.showModal());
  let going = 0;
  document.addEventListener('keydown', event => {
    if (event.ctrlKey || event.altKey || event.metaKey || keys.open) return;
    if (event.target.closest('input, textarea, select, [contenteditable]')) return;
    const isGoing = Date.now() - going < 1500;
    going = 0;
    if (isGoing) {
      find(`nav.pages a[data-key="${CSS.escape(event.key)}"]`)?.click();
    } else if (event.key === 'g') {
      going = Date.now();
    } else if (event.key === '/') {
      event.preventDefault();
      find('#find')?.focus();
    } else if (event.key === 'p') {
      togglePause();
    } else if (event.key === '?') {
      keys.showModal();
    }
  });
})();
