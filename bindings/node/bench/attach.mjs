// What `attach` costs: `node attach.mjs [ROUNDS] [SECONDS]`. The same echo at a port of the server's own and at that of an HTTP
// server of Node, with and without TLS, and by `ws`, in turns; medians, and the medians of the ratios within a round.

import { measure, message } from "./measure.mjs";
import { median } from "./node.mjs";

const rounds = Number(process.argv[2] ?? 3);
const seconds = Number(process.argv[3] ?? 2);
const PEERS = {
  own: "its own port",
  attached: "attached",
  ws: "`ws`",
  "own-tls": "its own port, TLS",
  "attached-tls": "attached, TLS",
  "ws-tls": "`ws`, TLS",
};
const IN_FLIGHT = { "echo-64": 64, "echo-1": 1 };

const load = (inFlight) => (port, peer) => [
  "load",
  `${peer.endsWith("-tls") ? "wss" : "ws"}://localhost:${port}/ws`,
  ...["--connections", 100, "--in-flight", inFlight, "--reply", "order", "--insecure"],
  ...["--message", message, "--duration-s", "600", "--quiet"],
];

console.log(
  `${message.length} bytes, 100 connections, medians of ${rounds} rounds of ${seconds} s, Node ${process.version}.\n`,
);
console.log(
  "| task | server | messages/s | to its own port | CPU per message | to its own port | core busy |",
);
console.log("|---|---|---|---|---|---|---|");
for (const [task, inFlight] of Object.entries(IN_FLIGHT)) {
  const found = Object.fromEntries(Object.keys(PEERS).map((peer) => [peer, []]));
  for (let round = 0; round < rounds; round++) {
    for (const [peer, all] of Object.entries(found)) {
      all.push(await measure([process.execPath], peer, task, load(inFlight), seconds));
    }
  }
  for (const [peer, all] of Object.entries(found)) {
    const base = found[peer.endsWith("-tls") ? "own-tls" : "own"];
    const figure = (name) => median(all.map((one) => one[name]));
    const ratio = (name) => median(all.map((one, round) => one[name] / base[round][name])).toFixed(2);
    console.log(
      `| ${task} | ${PEERS[peer]} | ${Math.round(figure("perS")).toLocaleString("en")} | ${ratio("perS")} ` +
        `| ${figure("cpuUs").toFixed(2)} us | ${ratio("cpuUs")} | ${Math.round(100 * figure("busy"))}% |`,
    );
  }
}
process.exit(0);
