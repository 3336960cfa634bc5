// One port behind the real nginx, with the configuration that the documentation has.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { jwt } from "../index.mjs";
import { Client, eventually, serve } from "./support.mjs";

const NGINX = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"].find((file) =>
  fs.existsSync(file),
);
const SECRET = "a secret of at least thirty-two bytes";

/** A port that nobody listens on now. */
async function freePort() {
  const probe = net.createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}

/** The locations of the documentation, for these ports. */
function documented(serverPort, webPort) {
  const page = fs.readFileSync(new URL("../../../docs/node.md", import.meta.url), "utf8");
  const [, block] = /```nginx\n(.*?)```/s.exec(page);
  const replaced = block.replace(":5006", `:${serverPort}`).replace(":3000", `:${webPort}`);
  assert.notEqual(replaced, block);
  return replaced;
}

async function startNginx(t, serverPort, webPort) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-nginx-"));
  t.after(() => fs.rmSync(folder, { recursive: true, force: true }));
  const port = await freePort();
  const file = path.join(folder, "nginx.conf");
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  fs.writeFileSync(
    file,
    `daemon off; master_process off; pid ${folder}/pid; error_log ${folder}/error.log;
    events {}
    http {
      access_log off;
      ${temporary.map((name) => `${name}_temp_path ${folder}/${name};`).join("\n")}
      server {
        listen 127.0.0.1:${port};
        ${documented(serverPort, webPort)}
      }
    }`,
  );
  const nginx = spawn(NGINX, ["-c", file, "-p", folder], { stdio: "ignore" });
  const ended = once(nginx, "exit");
  t.after(async () => {
    nginx.kill("SIGKILL");
    await ended;
  });
  await eventually(async () => {
    if (nginx.exitCode !== null) throw new Error(fs.readFileSync(path.join(folder, "error.log"), "utf8"));
    const socket = net.connect(port, "127.0.0.1");
    const isListening = await once(socket, "connect").then(
      () => true,
      () => false,
    );
    socket.destroy();
    return isListening;
  });
  return port;
}

test("one port behind nginx: pages, WebSockets, cookies and addresses", {
  skip: NGINX === undefined && "there is no nginx",
}, async (t) => {
  const web = http.createServer((request, response) => response.end(`the page ${request.url}`));
  web.listen(0, "127.0.0.1");
  await once(web, "listening");
  t.after(() => {
    web.close();
    web.closeAllConnections();
  });
  const seen = [];
  const options = { noAuth: undefined, jwtSecret: SECRET, cookieName: "session", trustedProxy: "127.0.0.1" };
  const server = await serve(t, { ...options, origin: "http://page.example", allowHost: "any" }, (server) => {
    server.on("connect", ({ connection }) => seen.push(connection.address.host));
    server.on("echo", ({ connection, payload }) => connection.send(payload, { type: "echoed" }));
  });
  const port = await startNginx(t, server.address.port, web.address().port);

  const page = await fetch(`http://127.0.0.1:${port}/a/page`);
  assert.equal(await page.text(), "the page /a/page");

  const token = jwt.encode({ sub: "user-1", exp: Date.now() / 1000 + 60 }, SECRET);
  const headers = { cookie: `session=${token}` };
  const url = `ws://127.0.0.1:${port}/ws`;
  // The client's own words about its address are replaced by nginx.
  const forged = { ...headers, "x-forwarded-for": "203.0.113.9" };
  const client = await Client.connect(t, url, {
    headers: forged,
    origin: "http://page.example",
    localAddress: "127.0.0.2",
  });
  await client.until("server_ready");
  const text = "x".repeat(300_000);
  client.say("echo", text);
  assert.equal((await client.until("echoed")).p, text);
  assert.deepEqual(seen, ["127.0.0.2"]);
  assert.equal(server.listConnections({ user: "user-1" }).length, 1);

  await assert.rejects(Client.connect(t, url, { headers, origin: "http://other.example" }), /403/);
  await assert.rejects(Client.connect(t, url, { headers: {}, origin: "http://page.example" }), /401/);

  // The end of either side reaches the other through nginx.
  client.socket.close(4000, "over");
  await eventually(() => server.connections === 0);
  const other = await Client.connect(t, url, { headers, origin: "http://page.example" });
  await eventually(() => server.connections === 1);
  await server.drain(1000);
  const { code } = await other.closed;
  assert.ok(code === 1001 || code === 1012 || (code >= 4000 && code < 5000), `closed with ${code}`);
});
