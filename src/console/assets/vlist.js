// A list that holds only the rows that can be seen, of any number of rows with heights known beforehand.

import { h } from "./dom.js";

const OVERSCAN_PX = 240;
const BORDERS_PX = 2;

export class VList {
  /**
   * `height(index)` in px, `render(index, row)` fills a reused row element. A list that `fits` is only as
   * high as its rows, as far as the styles allow.
   */
  constructor({ label, height, render, role = "list", rowClass = "", fits = false }) {
    this.fits = fits;
    this.heightOf = height;
    this.renderRow = render;
    this.rowClass = rowClass;
    this.count = 0;
    this.offsets = new Float64Array(1);
    this.rows = new Map();
    this.pool = [];
    this.selected = -1;
    this.body = h("div.vbody", { role, ariaLabel: label });
    this.el = h("div.vlist", { tabIndex: 0, role: "region", ariaLabel: label }, this.body);
    this.el.addEventListener(
      "scroll",
      () => {
        this.onscroll?.();
        this.draw();
      },
      { passive: true },
    );
    this.watcher = new ResizeObserver(() => {
      this.onresize?.();
      this.draw();
    });
    this.watcher.observe(this.el);
  }

  /** There are `count` rows now; those before `from` are as they were. */
  set(count, from = 0) {
    if (this.offsets.length < count + 1) {
      const grown = new Float64Array(Math.max(count + 1, this.offsets.length * 2));
      grown.set(this.offsets);
      this.offsets = grown;
    }
    for (let at = Math.min(from, count); at < count; at += 1) this.offsets[at + 1] = this.offsets[at] + this.heightOf(at);
    this.count = count;
    this.body.style.height = `${this.offsets[count]}px`;
    if (this.fits) this.el.style.height = `${this.offsets[count] + BORDERS_PX}px`;
    for (const [index, row] of this.rows) {
      if (index >= count) this.release(index, row);
      else if (index >= from) this.place(index, row);
    }
    this.draw();
  }

  /** Rows are drawn anew where they stand. */
  refresh() {
    for (const [index, row] of this.rows) this.renderRow(index, row);
  }

  /** A row that went out of sight is not hidden yet: mostly another one needs it at once. */
  release(index, row) {
    this.rows.delete(index);
    this.pool.push(row);
    // It will be another row, which nobody chose.
    if (row.contains(document.activeElement)) this.el.focus({ preventScroll: true });
  }

  hideUnused() {
    for (const row of this.pool) if (!row.hidden) row.hidden = true;
  }

  /** The row at a distance from the top. */
  indexAt(y) {
    let low = 0;
    let high = this.count - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.offsets[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  draw() {
    if (!this.count) {
      for (const [index, row] of this.rows) this.release(index, row);
      this.hideUnused();
      return;
    }
    const top = this.el.scrollTop;
    const first = this.indexAt(Math.max(0, top - OVERSCAN_PX));
    const last = this.indexAt(top + this.el.clientHeight + OVERSCAN_PX);
    for (const [index, row] of this.rows) if (index < first || index > last) this.release(index, row);
    for (let index = first; index <= last; index += 1) if (!this.rows.has(index)) this.place(index, this.pool.pop() ?? this.make());
    this.hideUnused();
  }

  make() {
    const row = h("div", { role: "listitem", class: `vrow ${this.rowClass}` });
    this.body.append(row);
    return row;
  }

  /** What is as it was is not written again: each write costs styles, layout and paint. */
  place(index, row) {
    const top = this.offsets[index];
    const height = this.offsets[index + 1] - top;
    if (row.hidden) row.hidden = false;
    row.classList.toggle("selected", index === this.selected);
    if (row.top !== top) row.style.transform = `translateY(${top}px)`;
    if (row.height !== height) row.style.height = `${height}px`;
    if (row.dataset.index !== String(index)) {
      row.dataset.index = index;
      row.setAttribute("aria-posinset", index + 1);
    }
    if (row.of !== this.count) row.setAttribute("aria-setsize", this.count);
    Object.assign(row, { top, height, of: this.count });
    this.rows.set(index, row);
    this.renderRow(index, row);
  }

  unselect() {
    this.rows.get(this.selected)?.classList.remove("selected");
    this.selected = -1;
  }

  select(index) {
    if (!this.count) return;
    this.unselect();
    this.selected = Math.max(0, Math.min(this.count - 1, index));
    const top = this.offsets[this.selected];
    const bottom = this.offsets[this.selected + 1];
    if (top < this.el.scrollTop) this.el.scrollTop = top;
    else if (bottom > this.el.scrollTop + this.el.clientHeight) this.el.scrollTop = bottom - this.el.clientHeight;
    this.draw();
    this.rows.get(this.selected)?.classList.add("selected");
  }

  get atEnd() {
    return this.el.scrollTop + this.el.clientHeight >= this.offsets[this.count] - 40;
  }

  toEnd() {
    this.el.scrollTop = this.offsets[this.count];
    this.draw();
  }

  stop() {
    this.watcher.disconnect();
  }
}
