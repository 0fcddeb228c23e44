/** Asks the server, or the files of a bundle. All addresses are relative to the page. */

export class Failure extends Error {}

export function asPath(...parts: (string | number)[]): string {
  return `./api/${parts.map((part) => encodeURIComponent(part)).join("/")}.json`;
}

export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  return answer<T>(await reach(path, signal === undefined ? {} : { signal }), path);
}

/** Only play posts. The header keeps other pages from doing so in the user's name. */
export async function postJson<T>(path: string, body: unknown): Promise<T> {
  const headers = { "Content-Type": "application/json", "X-Palestra": "1" };
  return answer<T>(await reach(path, { method: "POST", headers, body: JSON.stringify(body) }), path);
}

async function reach(path: string, options: RequestInit): Promise<Response> {
  try {
    return await fetch(path, { ...options, credentials: "same-origin" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Failure("The server did not answer. Is palestra view still running?");
  }
}

async function answer<T>(response: Response, path: string): Promise<T> {
  const text = await response.text();
  if (response.ok) return JSON.parse(withWholeSeeds(text)) as T;
  throw new Failure(`${reasonIn(text) || `${response.status} ${response.statusText}`} (${path})`);
}

/** Seeds have more digits than a JavaScript number holds, so they stay text. Inside a string the quotes would be escaped. */
export function withWholeSeeds(text: string): string {
  return text.replace(/"seed":\s*(\d{16,})/g, '"seed":"$1"');
}

function reasonIn(text: string): string {
  try {
    const error: unknown = (JSON.parse(text) as { error?: unknown }).error;
    return typeof error === "string" ? error : "";
  } catch {
    return text.length < 300 && !text.trimStart().startsWith("<") ? text.trim() : "";
  }
}
