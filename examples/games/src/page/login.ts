/**
 * Login of the player of this window. It is kept by name, so that a window that was closed opens as
 * the same player.
 */

export interface Login {
  player: string;
  token: string;
}

const key = (name: string) => `games.login.${name}`;

/** Logs in, as the player of before if there was one. */
export async function logIn(name: string): Promise<Login> {
  const kept = localStorage.getItem(key(name));
  const token = kept === null ? undefined : (JSON.parse(kept) as Login).token;
  const response = await fetch("/login", { method: "POST", body: JSON.stringify({ name, token }) });
  const body = (await response.json()) as Login & { error?: string };
  if (!response.ok) throw new Error(body.error ?? `the server answered ${response.status}`);
  localStorage.setItem(key(name), JSON.stringify(body));
  return body;
}

/** The name of a player without its suffix, which only machine players need. */
export function nameOf(player: string | null): string {
  if (player === null) return "–";
  const [name, suffix] = player.split("~");
  return name === "machine" ? `Machine ${suffix}` : (name ?? player);
}
