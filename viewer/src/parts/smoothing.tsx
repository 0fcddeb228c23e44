import { useState } from "preact/hooks";

/** How much curves are smoothed, kept for the next visit. */
export function useSmoothing(): [number, (value: number) => void] {
  const [smoothing, setSmoothing] = useState(() => Number(localStorage.getItem("palestra-smoothing") ?? "0.6"));
  const change = (value: number) => {
    localStorage.setItem("palestra-smoothing", String(value));
    setSmoothing(value);
  };
  return [smoothing, change];
}

export function SmoothingSlider({ value, onChange }: { value: number; onChange: (value: number) => void }) {
  return (
    <label class="slider">
      Smoothing
      <input type="range" min="0" max="0.98" step="0.02" value={value} onInput={(event) => onChange(Number(event.currentTarget.value))} />
      <output>{value.toFixed(2)}</output>
    </label>
  );
}
