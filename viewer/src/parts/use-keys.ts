/** Keys of a view, from the moment it is shown. They are left alone while something is typed or a list is open. */

import { useLayoutEffect, useRef } from "preact/hooks";

export function useKeys(keys: Record<string, () => unknown>): void {
  const current = useRef(keys);
  current.current = keys;
  useLayoutEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, select, textarea, [role=slider]") !== null) return;
      const action = current.current[event.key];
      if (action === undefined) return;
      event.preventDefault();
      action();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
}
