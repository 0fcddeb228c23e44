/** Where the reader is, and going elsewhere. */

import { useLayoutEffect, useState } from "preact/hooks";
import { type Place, parseHash } from "../lib/route";

const moved = new Set<(place: Place) => void>();

function tell(): void {
  const place = parseHash(location.hash);
  for (const listener of moved) listener(place);
}

addEventListener("hashchange", tell);

export function go(hash: string): void {
  location.hash = hash;
}

/** Changes what the address says of the same view, without a new entry in the history. */
export function adjust(hash: string): void {
  history.replaceState(null, "", hash);
  tell();
}

export function usePlace(): Place {
  const [place, setPlace] = useState(() => parseHash(location.hash));
  useLayoutEffect(() => {
    moved.add(setPlace);
    return () => {
      moved.delete(setPlace);
    };
  }, []);
  return place;
}
