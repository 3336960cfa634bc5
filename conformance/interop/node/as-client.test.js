// ws as the client of `tidewire serve`.

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import WebSocket from 'ws'

import { echo, messageBytesMax, serve } from './tidewire.js'

const sizes = [0, 1, 125, 126, 127, 65_535, 65_536, 1 << 20]
const largest = 15 << 20

const offers = {
  plain: false,
  offered: { threshold: 0 },
  'no context': { threshold: 0, serverNoContextTakeover: true, clientNoContextTakeover: true },
  'small windows': { threshold: 0, serverMaxWindowBits: 9, clientMaxWindowBits: 10 },
}

async function open(url, perMessageDeflate, protocols = []) {
  const socket = new WebSocket(url, protocols, { perMessageDeflate, maxPayload: 0 })
  await once(socket, 'open')
  return socket
}

async function roundTrip(socket, message) {
  const received = once(socket, 'message')
  socket.send(message)
  const [data, isBinary] = await received
  return isBinary ? data : data.toString()
}

for (const mode of ['off', 'shared', 'per-connection']) {
  for (const [name, offer] of Object.entries(offers)) {
    describe(`deflate ${mode}, ${name}`, () => {
      let url, end
      before(async () => {
        url = await echo({ after: (stop) => { end = stop } }, mode)
      })
      after(() => end())

      test('texts and binaries of every form of length', async () => {
        const socket = await open(url, offer)
        assert.equal(socket.extensions !== '', mode !== 'off' && offer !== false)
        const few = name === 'plain' || name === 'offered'
        for (const size of few ? [...sizes, largest] : sizes) {
          const text = 'größe € 0123456789 '.repeat(size / 20 + 1).slice(0, size / 2)
          assert.ok(await roundTrip(socket, text) === text, `a text of ${text.length}`)
          const data = randomBytes(size)
          assert.ok(data.equals(await roundTrip(socket, data)))
        }
        socket.close()
      })

      test('fragments, with a ping between them', async () => {
        const socket = await open(url, offer)
        const received = once(socket, 'message')
        const pong = once(socket, 'pong')
        socket.send('grö', { fin: false })
        socket.ping('between')
        socket.send('', { fin: false })
        socket.send('ße \u{1f30a}', { fin: true })
        assert.equal((await pong)[0].toString(), 'between')
        assert.equal((await received)[0].toString(), 'größe \u{1f30a}')
        socket.close()
      })

      test('a thousand small messages', async () => {
        const socket = await open(url, offer)
        const received = []
        const all = new Promise((resolve) => {
          socket.on('message', (data) => received.push(data.toString()) === 1000 && resolve())
        })
        const sent = Array.from({ length: 1000 }, (_, number) => `message ${number}`)
        sent.forEach((message) => socket.send(message))
        await all
        assert.deepEqual(received, sent)
        socket.close()
      })

      test('close codes and reasons', async () => {
        for (const [code, reason] of [[1000, ''], [1001, 'gone'], [3000, 'ö'.repeat(61)], [4999, 'x']]) {
          const socket = await open(url, offer)
          socket.close(code, reason)
          assert.equal((await once(socket, 'close'))[0], code)
        }
        const socket = await open(url, offer)
        socket.close()
        assert.equal((await once(socket, 'close'))[0], 1005)
      })

      test('a message past the limit', async () => {
        const socket = await open(url, offer)
        socket.on('error', () => {})
        socket.send(Buffer.alloc(messageBytesMax + 1))
        assert.equal((await once(socket, 'close'))[0], 1009)
      })
    })
  }
}

test('the first subprotocol is taken', async (t) => {
  const socket = await open(await echo(t, 'off'), false, ['chat', 'other'])
  assert.equal(socket.protocol, 'chat')
  socket.close()
})

test('version 1', async (t) => {
  const url = await serve(t, '--no-auth', '--deflate', 'per-connection')
  const socket = new WebSocket(url)
  const waiting = []
  const messages = []
  socket.on('message', (data) => {
    messages.push(JSON.parse(data))
    waiting.shift()?.()
  })
  const next = async () => {
    if (messages.length === 0) await new Promise((resolve) => waiting.push(resolve))
    return messages.shift()
  }
  const send = (message) => socket.send(JSON.stringify(message))

  const ready = await next()
  assert.equal(ready.t, 'server_ready')
  send({ c: 'WSE', t: 'client_hello', cid: '1', p: { protocol_version: 1 }, v: 1 })
  const hello = await next()
  assert.deepEqual([hello.t, hello.cid, hello.p.protocol_version], ['server_hello', '1', 1])
  assert.equal(hello.p.connection_id, ready.p.details.connection_id)
  send({ t: 'ping', p: { timestamp: 5 } })
  const pong = await next()
  assert.deepEqual([pong.t, pong.p.client_timestamp], ['PONG', 5])
  const trade = { t: 'trade', p: { text: 'größe' } }
  send(trade)
  assert.deepEqual(await next(), trade)
  send({ no: 'type' })
  assert.equal((await next()).p.code, 'INVALID_MESSAGE')
  socket.close()
})
