/** A table of any number of rows: only those in sight are in the page. */

import type { RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Episodes } from "../data/episode-store";
import type { Column, Sort } from "../lib/episodes";
import { count, number } from "../lib/format";
import { Outcome, Stop } from "./outcome";
import { go } from "./place";

interface Props {
  episodes: Episodes;
  numbers: number[];
  sort: Sort | null;
  /** What was asked for: another question starts at the top again, more rows do not. */
  question: string;
  onSort: (sort: string) => void;
  linkTo: (row: number) => string;
  groupLink: (row: number) => string;
}

const ROW_HEIGHT = 30;
const SPARE_ROWS = 12;

/** `rank` 1 is shown on every screen, 2 and 3 where there is room. */
const HEADS: { column: Column; label: string; isNumber: boolean; rank: 1 | 2 | 3 }[] = [
  { column: "id", label: "Episode", isNumber: false, rank: 1 },
  { column: "step", label: "Step", isNumber: true, rank: 3 },
  { column: "task", label: "Task", isNumber: false, rank: 2 },
  { column: "category", label: "Category", isNumber: false, rank: 3 },
  { column: "success", label: "Outcome", isNumber: false, rank: 1 },
  { column: "reward", label: "Reward", isNumber: true, rank: 1 },
  { column: "advantage", label: "Advantage", isNumber: true, rank: 3 },
  { column: "stop", label: "Ended by", isNumber: false, rank: 2 },
  { column: "turns", label: "Turns", isNumber: true, rank: 2 },
  { column: "tokens", label: "Tokens", isNumber: true, rank: 3 },
  { column: "invalid", label: "Invalid", isNumber: true, rank: 3 },
];

export function EpisodeTable({ episodes, numbers, sort, question, onSort, linkTo, groupLink }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const sight = useSight(scroller);
  const [selected, setSelected] = useState(-1);
  useEffect(() => {
    setSelected(-1);
    scroller.current?.scrollTo({ top: 0 });
  }, [question]);

  const first = Math.max(0, Math.floor(sight.top / ROW_HEIGHT) - SPARE_ROWS);
  const last = Math.min(numbers.length, Math.ceil((sight.top + sight.height) / ROW_HEIGHT) + SPARE_ROWS);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.target !== scroller.current) return;
    if (event.key === "Enter" && selected >= 0) go(linkTo(numbers[selected]!));
    const target = targetOf(event.key, selected, Math.floor(sight.height / ROW_HEIGHT) - 2, numbers.length);
    if (target === null) return;
    event.preventDefault();
    setSelected(target);
    keepInSight(scroller.current, target);
  };
  return (
    <div
      ref={scroller}
      class="episodes"
      tabIndex={0}
      role="region"
      aria-label="Episodes; arrow keys choose a row, Enter opens it"
      onKeyDown={onKeyDown}
    >
      <table class="data" aria-rowcount={numbers.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {HEADS.map((head) => (
              <HeadCell key={head.column} {...head} sort={sort} onSort={onSort} />
            ))}
            <th scope="col" class="rank-2">
              Group
            </th>
          </tr>
        </thead>
        <tbody>
          <Spacer height={first * ROW_HEIGHT} />
          {numbers.slice(first, last).map((row, index) => (
            <Row
              key={row}
              episodes={episodes}
              row={row}
              place={first + index}
              isSelected={first + index === selected}
              link={linkTo(row)}
              group={groupLink(row)}
            />
          ))}
          <Spacer height={(numbers.length - last) * ROW_HEIGHT} />
        </tbody>
      </table>
    </div>
  );
}

/** Which part of a box that scrolls can be seen. */
function useSight(box: RefObject<HTMLElement | null>): { top: number; height: number } {
  const [sight, setSight] = useState({ top: 0, height: 800 });
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const look = () => setSight({ top: element.scrollTop, height: element.clientHeight });
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener("scroll", look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", look);
    };
  }, []);
  return sight;
}

function Spacer({ height }: { height: number }) {
  return height > 0 ? (
    <tr aria-hidden="true" class="spacer">
      <td style={{ height: `${height}px` }} />
    </tr>
  ) : null;
}

/** The row that a key goes to. */
function targetOf(key: string, selected: number, page: number, count: number): number | null {
  const targets: Record<string, number> = {
    ArrowDown: selected + 1,
    ArrowUp: selected - 1,
    PageDown: selected + page,
    PageUp: selected - page,
    Home: 0,
    End: count - 1,
  };
  const target = targets[key];
  return target === undefined ? null : Math.max(0, Math.min(count - 1, target));
}

function keepInSight(element: HTMLElement | null, index: number): void {
  if (element === null) return;
  const head = 2 * ROW_HEIGHT;
  const top = index * ROW_HEIGHT;
  if (top < element.scrollTop) element.scrollTop = top;
  else if (top + head > element.scrollTop + element.clientHeight) element.scrollTop = top + head - element.clientHeight;
}

interface HeadProps {
  column: Column;
  label: string;
  isNumber: boolean;
  rank: number;
  sort: Sort | null;
  onSort: (sort: string) => void;
}

/** Once up, once down, then as in the files. */
function HeadCell({ column, label, isNumber, rank, sort, onSort }: HeadProps) {
  const isSorted = sort?.column === column;
  const next = !isSorted ? column : sort.descending ? "" : `-${column}`;
  return (
    <th
      scope="col"
      class={`${isNumber ? "is-number " : ""}rank-${rank}`}
      aria-sort={isSorted ? (sort.descending ? "descending" : "ascending") : "none"}
    >
      <button type="button" onClick={() => onSort(next)}>
        {label}
        <span class="arrow" aria-hidden="true">
          {isSorted ? (sort.descending ? "▾" : "▴") : ""}
        </span>
      </button>
    </th>
  );
}

interface RowProps {
  episodes: Episodes;
  row: number;
  place: number;
  isSelected: boolean;
  link: string;
  group: string;
}

function Row({ episodes: { rows, texts }, row, place, isSelected, link, group }: RowProps) {
  const open = (event: MouseEvent) => {
    if ((event.target as HTMLElement).closest("a") === null) go(link);
  };
  if (rows.damaged[row]) {
    return (
      <tr aria-rowindex={place + 2} class={isSelected ? "is-selected" : ""} onClick={open}>
        <td colSpan={HEADS.length + 1}>
          <a href={link}>damaged line {rows.line[row]! + 1}</a>
        </td>
      </tr>
    );
  }
  const success = rows.success[row]!;
  return (
    <tr aria-rowindex={place + 2} class={isSelected ? "is-selected" : ""} onClick={open}>
      <td class="rank-1">
        <a href={link}>{rows.id[row]}</a>
        {rows.baseline[row] === 1 && <span class="muted"> greedy</span>}
      </td>
      <td class="is-number rank-3">{rows.step[row]}</td>
      <td class="rank-2">{rows.task[row]}</td>
      <td class="rank-3">{texts[rows.category[row]!]}</td>
      <td class="rank-1">
        <Outcome success={success < 0 ? null : success === 1} />
      </td>
      <td class="is-number rank-1">{number(rows.reward[row])}</td>
      <td class="is-number rank-3">{number(rows.advantage[row])}</td>
      <td class="rank-2">
        <Stop stop={texts[rows.stop[row]!] ?? ""} />
      </td>
      <td class="is-number rank-2">{rows.turns[row]}</td>
      <td class="is-number rank-3">{count(rows.tokens[row]!)}</td>
      <td class="is-number rank-3">{rows.invalid[row]}</td>
      <td class="rank-2">
        <a href={group} aria-label={`Group of task ${rows.task[row]}`}>
          group
        </a>
      </td>
    </tr>
  );
}
