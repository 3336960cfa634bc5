// What the tests of loads share: servers, files, and the result of a load in words.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

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

/** The path of a TOML file with this text; it ends with the test. */
export async function file(test, text) {
  const folder = await mkdtemp(join(tmpdir(), 'tidewire-'))
  test.after(() => rm(folder, { recursive: true }))
  const path = join(folder, 'file.toml')
  await writeFile(path, text)
  return path
}

/** Says what a load did: its requests, and the notes of the report. */
export function told(result) {
  return JSON.stringify([result.requests, result.errors, result.notes])
}

export function assertAll(result, count) {
  assert.equal(result.requests.succeeded, count, told(result))
  assert.equal(result.requests.failed, 0, told(result))
}
