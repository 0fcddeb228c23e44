/** Light or dark: as the system says, unless the reader chose. Canvases take their colors from the style sheet. */

import { useEffect, useState } from "preact/hooks";

export type Theme = "light" | "dark";
type Choice = Theme | null;

const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<(theme: Theme) => void>();
let choice = stored();
const canvasColors = new Map<string, string>();

function stored(): Choice {
  const kept = localStorage.getItem("palestra-theme");
  return kept === "light" || kept === "dark" ? kept : null;
}

function currentTheme(): Theme {
  return choice ?? (system.matches ? "dark" : "light");
}

function apply(): void {
  canvasColors.clear();
  document.documentElement.dataset["theme"] = currentTheme();
  for (const listener of listeners) listener(currentTheme());
}

system.addEventListener("change", apply);
apply();

export function toggleTheme(): void {
  choice = currentTheme() === "dark" ? "light" : "dark";
  localStorage.setItem("palestra-theme", choice);
  apply();
}

export function useTheme(): Theme {
  const [theme, setTheme] = useState(currentTheme);
  useEffect(() => {
    listeners.add(setTheme);
    return () => {
      listeners.delete(setTheme);
    };
  }, []);
  return theme;
}

const PALETTE_SIZE = 8;

/** A color of the style sheet as canvases need it: a number is an index into the palette. */
export function themeColor(name: number | string, opacity = 1): string {
  const variable = typeof name === "number" ? `--series-${name % PALETTE_SIZE}` : `--${name}`;
  const key = `${variable} ${opacity}`;
  let color = canvasColors.get(key);
  if (color === undefined) {
    const value = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
    color =
      opacity === 1
        ? value
        : `${value}${Math.round(opacity * 255)
            .toString(16)
            .padStart(2, "0")}`;
    canvasColors.set(key, color);
  }
  return color;
}
