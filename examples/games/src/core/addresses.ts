/** The address of the WebSocket, as a page finds it. */

/** What the server says of its WebSocket: a page knows the host, because it came from there. */
export interface SocketPlace {
  port: number;
  path: string;
}

/** Where clients connect, seen from a page of the server. */
export function socketUrl(page: { protocol: string; hostname: string }, place: SocketPlace): string {
  const scheme = page.protocol === "https:" ? "wss" : "ws";
  return `${scheme}://${page.hostname}:${place.port}${place.path}`;
}
