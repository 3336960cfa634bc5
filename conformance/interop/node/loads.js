// What the tests of loads share: servers, files, and the result of a load in words.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { createServer as createTcpServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** An HTTP server on a free port; it ends with the test. */
export async function listen(test, http = createServer()) {
  http.listen(0, '127.0.0.1')
  await once(http, 'listening')
  test.after(() => {
    http.close()
    http.closeAllConnections()
  })
  return { http, url: `ws://127.0.0.1:${http.address().port}/` }
}

/** A folder that ends with the test. */
export async function folder(test) {
  const path = await mkdtemp(join(tmpdir(), 'tidewire-'))
  // A program that ends with the test, too, may still write into it.
  test.after(() => rm(path, { recursive: true, force: true, maxRetries: 10 }))
  return path
}

/** The path of a TOML file with this text; it ends with the test. */
export async function file(test, text) {
  const path = join(await folder(test), 'file.toml')
  await writeFile(path, text)
  return path
}

/** A port of 127.0.0.1 on which nothing listens. */
export async function freePort() {
  const server = createTcpServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address()
  server.close()
  await once(server, 'close')
  return port
}

/** Starts a program, which ends with the test, and waits at most a minute until it is ready. */
export async function start(test, [program, ...flags], isReady, env = {}) {
  const server = spawn(program, flags, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const output of [server.stdout, server.stderr]) output.on('data', (data) => { said += data })
  const ended = once(server, 'close')
  test.after(async () => {
    server.kill()
    await ended
  })
  for (const end = Date.now() + 60_000; Date.now() < end; await sleep(50)) {
    if (server.exitCode !== null) break
    if (await isReady()) return
  }
  throw new Error(`${program} is not ready: ${said}`)
}

/** Says what a load did: its requests, and the notes of the report. */
export function told(result) {
  return JSON.stringify([result.requests, result.errors, result.notes])
}

export function assertAll(result, count) {
  assert.equal(result.requests.succeeded, count, told(result))
  assert.equal(result.requests.failed, 0, told(result))
}
