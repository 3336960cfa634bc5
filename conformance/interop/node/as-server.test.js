// ws as the server of this project's client and load generator.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { WebSocketServer } from 'ws'

import { run } from './tidewire.js'

const servers = {
  plain: false,
  deflate: { threshold: 0 },
  'no context': { threshold: 0, serverNoContextTakeover: true, clientNoContextTakeover: true },
  'small windows': { threshold: 0, serverMaxWindowBits: 9, clientMaxWindowBits: 10 },
}

for (const [name, perMessageDeflate] of Object.entries(servers)) {
  test(name, async (t) => {
    const server = new WebSocketServer({ host: '127.0.0.1', port: 0, perMessageDeflate, maxPayload: 0 })
    t.after(() => server.close())
    server.on('connection', (socket) => {
      socket.on('message', (data, binary) => socket.send(data, { binary }))
    })
    await once(server, 'listening')
    const url = `ws://127.0.0.1:${server.address().port}`

    await t.test('every message comes back', async () => {
      assert.deepEqual(await run(process.env.TIDEWIRE_CLIENT, 'echo', url), { code: 0, errors: '' })
    })

    await t.test('bench', async (t) => {
      const out = await mkdtemp(join(tmpdir(), 'interop-'))
      t.after(() => rm(out, { recursive: true }))
      const load = ['--profile', 'raw', '--test', 'echo', '--connections', '5', '--duration-s', '0.5']
      const { code, errors } = await run(process.env.TIDEWIRE, 'bench', url, ...load, '--out', out)
      // 3 and 4 are about how fast it went, not about what.
      assert.ok([0, 3, 4].includes(code), errors)
      const report = JSON.parse(await readFile(join(out, 'report.json')))
      for (const { messages, connected, failed } of report.results) {
        assert.ok(messages.confirmed > 0)
        assert.deepEqual([messages.lost, connected, failed], [0, 5, 0])
      }
    })
  })
}
