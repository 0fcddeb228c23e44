/** The step under the pointer, which all panels show at once. */

import { useLayoutEffect, useState } from "preact/hooks";

const listeners = new Set<(step: number | null) => void>();
let current: number | null = null;

export function setHoveredStep(step: number | null): void {
  if (step === current) return;
  current = step;
  for (const listener of listeners) listener(step);
}

export function hoveredStep(): number | null {
  return current;
}

export function useHoveredStep(): number | null {
  const [step, setStep] = useState(current);
  useLayoutEffect(() => {
    listeners.add(setStep);
    return () => {
      listeners.delete(setStep);
    };
  }, []);
  return step;
}
