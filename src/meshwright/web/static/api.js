// The REST API: one request of a kind at a time; a newer one ends the older.

const running = new Map();

export class ApiError extends Error {
  constructor(message, kind) { super(message); this.kind = kind; }
}

/** POST a question; null when a newer question of the same `lane` took its place. */
export async function post(path, body, lane = path) {
  running.get(lane)?.abort();
  const control = new AbortController();
  running.set(lane, control);
  try {
    const answer = await fetch(`/api/${path}`, {
      method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify(body), signal: control.signal,
    });
    if (!answer.ok) {
      const said = await answer.json().catch(() => null);
      throw new ApiError(said?.error ?? `the server answered ${answer.status}`, said?.kind ?? "internal");
    }
    return answer.headers.get("content-type").startsWith("application/json") ? await answer.json() : await answer.text();
  } catch (error) {
    if (error.name === "AbortError") return null;
    if (error instanceof ApiError) throw error;
    throw new ApiError("the server does not answer; is `meshwright serve` still running?", "internal");
  } finally {
    if (running.get(lane) === control) running.delete(lane);
  }
}

export const stop = (lane) => running.get(lane)?.abort();

export async function get(path) {
  const answer = await fetch(`/api/${path}`);
  if (!answer.ok) throw new ApiError(`the server answered ${answer.status}`, "internal");
  return answer.json();
}

/** Call `work` once nothing was asked for `wait` milliseconds. */
export function debounced(work, wait) {
  let timer = 0;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => work(...given), wait); };
}
