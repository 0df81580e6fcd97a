// Numbers as people read them. What is not known is a dash.

export const UNKNOWN = "–";

export function decimal(value, digits = 1) {
  return value === null || value === undefined ? UNKNOWN : value.toFixed(digits);
}

export function whole(value) {
  return value === null || value === undefined ? UNKNOWN : Math.round(value).toLocaleString("en");
}

export function percent(share) {
  return share === null || share === undefined ? UNKNOWN : `${Math.round(share * 100)} %`;
}

export function milliseconds(value) {
  return value === null || value === undefined ? UNKNOWN : `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

export function age(ms) {
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}
