/** Where the server is: `?server=ws://…` of the page's address, or `tidewire serve` on this machine. */
export const SERVER = new URLSearchParams(location.search).get("server") ?? "ws://127.0.0.1:5006/ws";
